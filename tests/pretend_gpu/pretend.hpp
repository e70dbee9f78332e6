// A pretend GPU. What LibTorch and gputrain call of CUDA's runtime, cuBLAS, cuDNN and NCCL stands here once more, to be
// loaded in front of the real libraries into the real program on a machine without a GPU. Device memory is the host's,
// copies and fills happen at once, or where they are captured at each launch of the graph; kernels, products and
// convolutions do nothing. So numbers mean nothing, but all that the host does is done, and what a GPU would refuse is
// refused and reported: work that breaks a capture, launches beyond its limits, memory that is not there.
//
// Everything is called before constructors and after destructors of other libraries: state is made when it is first
// used and never destroyed.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>

#include <cuda_runtime_api.h>

// Found by the dynamic linker in front of the real one.
#define PRETEND extern "C" __attribute__((visibility("default")))

namespace gputrain::pretend {

/// Of all that is pretended; may be taken again by who holds it.
std::recursive_mutex& mutex();

/// A line "REFUSED ..." in the report, the file PRETEND_GPU_REPORT with the process's number behind it, and the calls
/// that led there. Returns `error`, which cudaGetLastError() then gives.
cudaError_t refuse(cudaError_t error, const std::string& what);

/// Keeps `error` for cudaGetLastError() without a line in the report: the program may well meet it.
cudaError_t fail(cudaError_t error);

/// Counts; the report ends with a line "COUNT <number> <what>" for each.
void count(const std::string& what, size_t number = 1);

/// Puts work that is not looked at any further, as of a kernel, or `work` into a stream: done now, or at each launch of
/// the graph that the stream is being captured into.
cudaError_t enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work = {});

/// Amid the capture with the number PRETEND_CAPTURE_SHORTAGE, of the long ones, a kernel that is first called cannot be
/// loaded. Only launches tell: cuDNN and cuBLAS keep the reason to themselves.
cudaError_t load_kernel(cudaStream_t stream);

/// For calls that may wait for the device: cudaSuccess, or the refusal while a stream is being captured.
cudaError_t may_wait(const char* call);

bool is_captured(cudaStream_t stream);
/// A graph that `stream` is being captured into needs `communicator` until it is destroyed.
void note_use(cudaStream_t stream, const void* communicator);
/// Graphs of collectives that are still there.
bool is_used_by_graphs(const void* communicator);
/// A collective, or a launch of a graph of collectives: that with the number PRETEND_HANG hangs, and what comes after
/// it.
void start_collectives();
/// Returns when what hangs is called off.
void wait_for_hang();
void call_off();

bool is_device_memory(const void* begin, size_t bytes);

/// A number from the environment.
size_t setting(const char* name, size_t otherwise);

}  // namespace gputrain::pretend
