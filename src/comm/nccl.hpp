// NCCL behind the same c10d interface as Gloo; a build without CUDA has no NCCL.
#pragma once

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "connection.hpp"
#include "gputrain/comm/nccl_name.hpp"

namespace gputrain::comm {

struct NcclParams {
  std::string name;  // name of the group, unique in this process
  int rank = 0, size = 1;
  at::Device device = at::kCPU;
  std::string interface;  // for NCCL's sockets, unless NCCL_SOCKET_IFNAME is set
  std::chrono::milliseconds deadline{};
};

/// Connects all ranks at once, so that a failure shows here and not in the first step.
c10::intrusive_ptr<c10d::Backend> connect_nccl(const c10::intrusive_ptr<c10d::Store>& store, const NcclParams& params);

/// Throws c10::DistBackendError when a collective on the GPU has been aborted. Does nothing for other backends.
void check_nccl(Connection& connection);

/// Ends the communicator: waits for its work, or aborts it after a failure or while an exception is being thrown. Does
/// nothing for other backends.
void release_nccl(Connection& connection) noexcept;

}  // namespace gputrain::comm
