// Published figures of GPUs in the servers that their maker sells: memory and links, for predictions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gputrain::device {

/// All rates are in bytes per second, of one GPU. Links count one direction.
struct GpuSystem {
  std::string_view name;    // "h100", as --gpus takes it
  std::string_view device;  // the driver's name, for peak_rate()
  std::string_view server;  // the server whose data sheet gives the network
  double memory = 0;        // HBM
  double inside = 0;        // NVLink to the other GPUs of the host
  double between = 0;       // network adapter to other hosts
};

/// Finds a system by its name, or by a device name as in DeviceFacts; empty: not in the table.
std::optional<GpuSystem> gpu_system(std::string_view name);
std::vector<std::string> gpu_system_names();

}  // namespace gputrain::device
