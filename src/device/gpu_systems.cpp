#include "gputrain/device/gpu_systems.hpp"

#include "gputrain/device/peak_rates.hpp"

namespace gputrain::device {
namespace {

constexpr int64_t kBytes = 1'000'000'000;
constexpr double kRate = 1e9;

/// NVLink: half of the sum of both directions that data sheets give. Network: an adapter of 400, 200 or, for two GPUs
/// of a DGX-1, 100 Gbit/s. Of two with the same device the first is found by it.
constexpr GpuSystem kSystems[] = {
    {"b200", "NVIDIA B200", "DGX B200", 180 * kBytes, 8000 * kRate, 900 * kRate, 50 * kRate},
    {"h200", "NVIDIA H200", "DGX H200", 141 * kBytes, 4800 * kRate, 450 * kRate, 50 * kRate},
    {"h100", "NVIDIA H100 80GB HBM3", "DGX H100", 80 * kBytes, 3350 * kRate, 450 * kRate, 50 * kRate},
    {"h100-pcie", "NVIDIA H100 PCIe", "", 80 * kBytes, 2000 * kRate},
    {"a100-40", "NVIDIA A100-SXM4-40GB", "DGX A100", 40 * kBytes, 1555 * kRate, 300 * kRate, 25 * kRate},
    {"a100", "NVIDIA A100", "DGX A100", 80 * kBytes, 2039 * kRate, 300 * kRate, 25 * kRate},
    {"a100-80", "NVIDIA A100", "DGX A100", 80 * kBytes, 2039 * kRate, 300 * kRate, 25 * kRate},
    {"rtx6000-ada", "NVIDIA RTX 6000 Ada Generation", "", 48 * kBytes, 960 * kRate},
    {"a6000", "NVIDIA RTX A6000", "", 48 * kBytes, 768 * kRate},
    {"l40s", "NVIDIA L40S", "", 48 * kBytes, 864 * kRate},
    {"a40", "NVIDIA A40", "", 48 * kBytes, 696 * kRate},
    {"5090", "NVIDIA GeForce RTX 5090", "", 32 * kBytes, 1792 * kRate},
    {"4090", "NVIDIA GeForce RTX 4090", "", 24 * kBytes, 1008 * kRate},
    {"3090", "NVIDIA GeForce RTX 3090", "", 24 * kBytes, 936 * kRate},
    {"a10", "NVIDIA A10", "", 24 * kBytes, 600 * kRate},
    {"l4", "NVIDIA L4", "", 24 * kBytes, 300 * kRate},
    {"v100", "Tesla V100-SXM2", "DGX-1", 16 * kBytes, 900 * kRate, 150 * kRate, 6.25 * kRate},
};

bool is_card(std::string_view device) {
  return device.find("PCIe") != std::string_view::npos || device.find("NVL") != std::string_view::npos;
}

}  // namespace

std::optional<GpuSystem> gpu_system(std::string_view name) {
  for (const GpuSystem& system : kSystems) {
    if (name == system.name || (is_named(name, system.device) && is_card(name) == is_card(system.device)))
      return system;
  }
  return std::nullopt;
}

std::vector<std::string> gpu_system_names() {
  std::vector<std::string> names;
  for (const GpuSystem& system : kSystems) names.emplace_back(system.name);
  return names;
}

}  // namespace gputrain::device
