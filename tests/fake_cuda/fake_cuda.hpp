// A fake GPU: reimplements what LibTorch and gputrain call of the CUDA runtime, cuBLAS, cuDNN and NCCL. It is preloaded
// into the real program on a machine without a GPU. Device memory is host memory. Copies and fills happen at once, or
// when captured, at each graph launch; kernels, products and convolutions do nothing. Values are therefore meaningless,
// but all host work is real, and what a GPU would reject is rejected and reported: calls that break a capture, launches
// beyond the limits, invalid memory.
//
// Functions are called before constructors and after destructors of other libraries, so state is created on first use
// and never destroyed.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>

#include <cuda_runtime_api.h>

#include "ledger.hpp"

// The dynamic linker finds these before the real ones.
#define FAKE_CUDA extern "C" __attribute__((visibility("default")))

namespace gputrain::fake_cuda {

/// Protects all fake state; recursive.
std::recursive_mutex& mutex();

/// Writes a line "REFUSED ..." and the call stack to the report, the file PRETEND_GPU_REPORT plus the process id.
/// Returns `error`, which cudaGetLastError() returns next.
cudaError_t refuse(cudaError_t error, const std::string& what);

/// Keeps `error` for cudaGetLastError() without a line in the report, because the program may cause it legitimately.
cudaError_t fail(cudaError_t error);

/// Adds to a counter; the report ends with a line "COUNT <number> <what>" for each.
void count(const std::string& what, size_t number = 1);

/// Adds `work`, or work without an effect (a kernel), to a stream: done at once, or at each launch of the graph that
/// the stream is being captured into. The ledger notes it with its cost.
cudaError_t enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work = {},
                    const Cost& cost = {});

/// In long capture number PRETEND_CAPTURE_SHORTAGE, a kernel cannot be loaded on its first call. Only launches report
/// the reason: cuDNN and cuBLAS hide it.
cudaError_t load_kernel(cudaStream_t stream);

/// Counts work that is queued outside of a capture; the GPU fails at number PRETEND_FAULT. Returns what fault() does.
cudaError_t start_work();
/// cudaSuccess, or the error that every call returns once the GPU has failed.
cudaError_t fault();

/// For calls that may wait for the device: cudaSuccess, or an error while a stream is being captured.
cudaError_t may_wait(const char* call);

bool is_captured(cudaStream_t stream);
/// The graph that `stream` is being captured into uses `communicator` until it is destroyed.
void note_use(cudaStream_t stream, const void* communicator);
/// True if an existing graph uses `communicator`.
bool is_used_by_graphs(const void* communicator);
/// Counts a collective or the launch of a graph of collectives. Number PRETEND_HANG and everything after it hangs.
void start_collectives();
bool is_hanging();
/// Waits until call_off() ends the hang.
void wait_for_hang();
void call_off();

bool is_device_memory(const void* begin, size_t bytes);

/// A number from the environment; `otherwise` if it is not set.
size_t setting(const char* name, size_t otherwise);

}  // namespace gputrain::fake_cuda
