// NCCL behind the same c10d interface as Gloo; a build without CUDA has none.
#pragma once

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "connection.hpp"

namespace gputrain::comm {

struct NcclPlace {
  int rank = 0, world_size = 1;
  at::Device device = at::kCPU;
  std::string interface;  // of the sockets NCCL meets over, unless NCCL_SOCKET_IFNAME says otherwise
  std::chrono::milliseconds deadline{};
};

/// Connects all ranks at once, so that a failure shows here and not in the first step.
c10::intrusive_ptr<c10d::Backend> connect_nccl(const c10::intrusive_ptr<c10d::Store>& store, const NcclPlace& place);

/// "nccl 2.28.9"
std::string nccl_name();

/// Whether what this thread hands to the group now is recorded to be replayed, and not done.
bool is_recorded(const Connection& connection);

/// Throws c10::DistBackendError when a collective that was handed to the GPU has since been aborted. Nothing to do for
/// other backends.
void check_nccl(Connection& connection);

/// Ends the communicator: waits for its work, or aborts it after a failure and where an exception is on its way up.
/// Nothing to do for other backends.
void release_nccl(Connection& connection) noexcept;

}  // namespace gputrain::comm
