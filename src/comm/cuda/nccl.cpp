#include "../nccl.hpp"

#include <cstdlib>
#include <exception>

#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace gputrain::comm {
namespace {

constexpr int kKeep = 0;  // setenv: keep a value that the user has set

// By default c10d's watchdog ends the process with SIGABRT when a collective or the GPU fails. With CleanUpOnly (2) it
// aborts the communicator, which frees the GPU, and we report the failure. It would first wait a minute, and another of
// its threads would keep the process alive for eight, both to dump the last collectives: turn the dumps off.
void let_failures_reach_us() {
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", kKeep);
  ::setenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0", kKeep);
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", kKeep);
  ::setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", kKeep);
  ::setenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0", kKeep);
}

// By default NCCL registers the memory of captured collectives with the network. Ranks then exchange handles during the
// capture: if one rank runs out of memory in the middle of it, the others wait until the deadline. NCCL also assumes
// that this memory is one allocation, but expandable segments map several pieces side by side: Megatron-LM met illegal
// memory accesses.
void keep_captures_local() { ::setenv("NCCL_GRAPH_REGISTER", "0", kKeep); }

}  // namespace

c10::intrusive_ptr<c10d::Backend> connect_nccl(const c10::intrusive_ptr<c10d::Store>& store, const NcclParams& params) {
  let_failures_reach_us();
  keep_captures_local();
  if (!params.interface.empty()) ::setenv("NCCL_SOCKET_IFNAME", ("=" + params.interface).c_str(), kKeep);
  auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  options->timeout = params.deadline;
  options->group_name = params.name;
  const c10::cuda::CUDAGuard guard(params.device);
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, params.rank, params.size, options);
  backend->setGroupUid(params.name);
  backend->setBoundDeviceId(params.device);
  backend->eagerConnectSingleDevice(params.device);
  return backend;
}

std::string nccl_name() { return "nccl " + c10d::getNcclVersion(); }

void check_nccl(Connection& connection) {
  if (connection.device.is_cpu()) return;
  switch (connection.backend->getError()) {
    case c10d::ErrorType::SUCCESS:
      return;
    case c10d::ErrorType::TIMEOUT:
      C10_THROW_ERROR(DistBackendError, "an earlier collective passed its deadline");
    case c10d::ErrorType::COMM_ERROR:
      C10_THROW_ERROR(DistBackendError, "NCCL lost the connection to a rank");
    case c10d::ErrorType::REMOTE_ERROR:
      C10_THROW_ERROR(DistBackendError, "another rank reported an NCCL error");
  }
}

void release_nccl(Connection& connection) noexcept {
  if (connection.device.is_cpu()) return;
  try {
    // After an error the others never run what this rank has queued, and shutdown() would wait for it forever.
    if (connection.is_lost() || std::uncaught_exceptions() > 0) {
      connection.backend->abort();
    } else {
      connection.backend->shutdown();
    }
  } catch (const std::exception&) {
    // The communicator is gone either way, and the error that led here is already being thrown.
  }
}

}  // namespace gputrain::comm
