// Fakes NCCL: each rank receives only its own data.
#include <atomic>
#include <cstring>
#include <string>

#include <unistd.h>

#include "fake_cuda.hpp"

namespace {

using namespace gputrain::fake_cuda;

constexpr int kDone = 0;  // ncclSuccess

struct Communicator {
  int rank = 0, size = 1;
};

struct Id {
  char bytes[128];
};

/// Indexed by ncclDataType_t.
size_t bytes_of(size_t number, int type) {
  constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return number * kBytes[type];
}

const char* of_nccl = "";  // the last error message

/// Collective number PRETEND_NCCL_SHORTAGE fails, as if it were the first of its algorithm and its buffers did not fit.
bool has_memory() {
  static std::atomic<size_t> number = 0;
  if (++number != setting("PRETEND_NCCL_SHORTAGE", 0)) return true;
  of_nccl = "Cuda failure 2 'out of memory'";
  return false;
}

int collective(const char* name, const void* from, void* to, size_t bytes, void* communicator, cudaStream_t stream) {
  if (!has_memory()) return 1;  // ncclUnhandledCudaError
  if (!is_device_memory(from, bytes) || !is_device_memory(to, bytes))
    refuse(cudaErrorInvalidValue, std::string(name) + " of memory that is not there");
  is_captured(stream) ? note_use(stream, communicator) : start_collectives();
  const auto work = [=] {
    count(name);
    std::memmove(to, from, bytes);
  };
  return enqueue(stream, name, work) == cudaSuccess ? kDone : 1;
}

}  // namespace

FAKE_CUDA int ncclGetVersion(int* version) {
  *version = 22800;
  return kDone;
}

FAKE_CUDA int ncclGetUniqueId(Id* id) {
  *id = {};
  return kDone;
}

FAKE_CUDA const char* ncclGetErrorString(int) { return "refused by the pretend GPU"; }
FAKE_CUDA const char* ncclGetLastError(void*) { return of_nccl; }

FAKE_CUDA int ncclCommInitRankConfig(void** communicator, int ranks, Id, int rank, void*) {
  *communicator = new Communicator{rank, ranks};
  return kDone;
}

FAKE_CUDA int ncclCommInitRank(void** communicator, int ranks, Id id, int rank) {
  return ncclCommInitRankConfig(communicator, ranks, id, rank, nullptr);
}

FAKE_CUDA int ncclCommGetAsyncError(void*, int* error) {
  *error = kDone;
  return kDone;
}

FAKE_CUDA int ncclCommFinalize(void*) { return kDone; }

FAKE_CUDA int ncclCommDestroy(void* communicator) {
  if (is_used_by_graphs(communicator))
    refuse(cudaErrorIllegalState, "a communicator is destroyed before graphs of its collectives: it waits for them");
  return kDone;
}

/// If PRETEND_ABORT_HANGS is set, never returns, as if the GPU did not react.
FAKE_CUDA int ncclCommAbort(void* communicator) {
  count("ncclCommAbort");
  while (setting("PRETEND_ABORT_HANGS", 0) > 0) ::pause();
  call_off();
  return ncclCommDestroy(communicator);
}

FAKE_CUDA int ncclGroupStart() { return kDone; }
FAKE_CUDA int ncclGroupEnd() { return kDone; }

FAKE_CUDA int ncclAllReduce(const void* from, void* to, size_t number, int type, int, void* communicator,
                            cudaStream_t stream) {
  return collective("ncclAllReduce", from, to, bytes_of(number, type), communicator, stream);
}

FAKE_CUDA int ncclBroadcast(const void* from, void* to, size_t number, int type, int, void* communicator,
                            cudaStream_t stream) {
  return collective("ncclBroadcast", from, to, bytes_of(number, type), communicator, stream);
}

FAKE_CUDA int ncclReduce(const void* from, void* to, size_t number, int type, int, int, void* communicator,
                         cudaStream_t stream) {
  return collective("ncclReduce", from, to, bytes_of(number, type), communicator, stream);
}

FAKE_CUDA int ncclAllGather(const void* from, void* to, size_t number, int type, void* communicator,
                            cudaStream_t stream) {
  const auto rank = static_cast<size_t>(static_cast<Communicator*>(communicator)->rank);
  return collective("ncclAllGather", from, static_cast<char*>(to) + rank * bytes_of(number, type),
                    bytes_of(number, type), communicator, stream);
}

FAKE_CUDA int ncclReduceScatter(const void* from, void* to, size_t number, int type, int, void* communicator,
                                cudaStream_t stream) {
  const auto rank = static_cast<size_t>(static_cast<Communicator*>(communicator)->rank);
  return collective("ncclReduceScatter", static_cast<const char*>(from) + rank * bytes_of(number, type), to,
                    bytes_of(number, type), communicator, stream);
}
