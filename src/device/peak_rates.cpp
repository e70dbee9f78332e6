#include "gputrain/device/peak_rates.hpp"

namespace gputrain::device {
namespace {

/// In TFLOP/s, without sparsity, which doubles the numbers in many data sheets; 0: not supported.
struct DataSheet {
  std::string_view name;  // start of the driver's device name; the first match counts
  double half, tf32, fp32;
  bool has_bf16 = true;
};

constexpr DataSheet kDataSheets[] = {
    {"NVIDIA B200", 2250, 1125, 75},
    {"NVIDIA H200 NVL", 835.5, 417.5, 60},
    {"NVIDIA H200", 989.4, 494.7, 66.9},
    {"NVIDIA H100 PCIe", 756.5, 378, 51.2},
    {"NVIDIA H100 NVL", 835.5, 417.5, 60},
    {"NVIDIA H100 80GB HBM3", 989.4, 494.7, 66.9},
    {"NVIDIA A100", 312, 156, 19.5},
    {"NVIDIA RTX 6000 Ada Generation", 364.2, 182.1, 91.1},
    {"NVIDIA RTX A6000", 154.8, 77.4, 38.7},
    {"NVIDIA L40S", 362, 183, 91.6},
    {"NVIDIA A40", 149.7, 74.8, 37.4},
    {"NVIDIA A10", 125, 62.5, 31.2},
    {"NVIDIA L4", 121, 60, 30.3},
    {"NVIDIA GeForce RTX 5090", 209.5, 104.8, 104.8},  // sums in fp32, as in training; also below
    {"NVIDIA GeForce RTX 4090", 165.2, 82.6, 82.6},
    {"NVIDIA GeForce RTX 3090", 71, 35.6, 35.6},
    {"Tesla T4", 65, 0, 8.1, false},
    {"Tesla V100-SXM2", 125, 0, 15.7, false},
    {"Tesla V100-PCIE", 112, 0, 14, false},
    {"Tesla V100S-PCIE", 130, 0, 16.4, false},
};

double rate_of(const DataSheet& sheet, std::string_view precision) {
  if (precision == "bf16") return sheet.has_bf16 ? sheet.half : 0;
  if (precision == "fp16") return sheet.half;
  if (precision == "tf32") return sheet.tf32;
  return precision == "fp32" ? sheet.fp32 : 0;
}

}  // namespace

bool is_named(std::string_view device, std::string_view name) {
  return device.starts_with(name) && device.find(" Laptop") == std::string_view::npos &&
         (device.size() == name.size() || device[name.size()] == ' ' || device[name.size()] == '-');
}

std::optional<double> peak_rate(std::string_view device, std::string_view precision) {
  for (const DataSheet& sheet : kDataSheets) {
    if (!is_named(device, sheet.name)) continue;
    const double rate = rate_of(sheet, precision);
    return rate > 0 ? std::optional(rate * 1e12) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace gputrain::device
