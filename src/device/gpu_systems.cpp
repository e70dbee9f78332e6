#include "gputrain/device/gpu_systems.hpp"

namespace gputrain::device {
namespace {

constexpr double kGiga = 1e9;

/// NVLink: half of the sum of both directions that data sheets give. Network: an adapter of 400, 200 or, for two GPUs
/// of a DGX-1, 100 Gbit/s.
constexpr GpuSystem kSystems[] = {
    {"b200", "NVIDIA B200", "DGX B200", 8000 * kGiga, 900 * kGiga, 50 * kGiga},
    {"h200", "NVIDIA H200", "DGX H200", 4800 * kGiga, 450 * kGiga, 50 * kGiga},
    {"h100", "NVIDIA H100 80GB HBM3", "DGX H100", 3350 * kGiga, 450 * kGiga, 50 * kGiga},
    {"a100", "NVIDIA A100", "DGX A100", 2039 * kGiga, 300 * kGiga, 25 * kGiga},
    {"v100", "Tesla V100-SXM2", "DGX-1", 900 * kGiga, 150 * kGiga, 6.25 * kGiga},
};

}  // namespace

std::optional<GpuSystem> gpu_system(std::string_view name) {
  for (const GpuSystem& system : kSystems) {
    const bool is_card = name.find("PCIe") != std::string_view::npos || name.find("NVL") != std::string_view::npos;
    if (name == system.name || (name.starts_with(system.device) && !is_card)) return system;
  }
  return std::nullopt;
}

std::vector<std::string> gpu_system_names() {
  std::vector<std::string> names;
  for (const GpuSystem& system : kSystems) names.emplace_back(system.name);
  return names;
}

}  // namespace gputrain::device
