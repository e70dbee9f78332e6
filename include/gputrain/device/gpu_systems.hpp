// Published figures of GPUs: memory, and links in the servers that their maker sells, for predictions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gputrain::device {

/// All rates are in bytes per second, of one GPU. Links count one direction; 0: a card that is not sold in a server.
struct GpuSystem {
  std::string_view name;     // "h100", as --gpus takes it
  std::string_view device;   // the driver's name, for peak_rate()
  std::string_view server;   // the server whose data sheet gives the network; empty: none
  int64_t memory_bytes = 0;  // the data sheet's GB as 10^9 bytes: error correction and the driver may take the rest
  double memory = 0;         // rate of the memory
  double inside = 0;         // NVLink to the other GPUs of the host
  double between = 0;        // network adapter to other hosts

  bool has_links() const noexcept { return inside > 0; }
};

/// Finds a system by its name, or by a device name as in DeviceFacts; empty: not in the table.
std::optional<GpuSystem> gpu_system(std::string_view name);
std::vector<std::string> gpu_system_names();

}  // namespace gputrain::device
