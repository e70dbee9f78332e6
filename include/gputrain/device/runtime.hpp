// The device of a rank: selection, facts for the start page, memory readings, random state.
//
// There are two implementations, for builds with and without CUDA. A CUDA build on a machine without a GPU behaves like
// a build without CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace gputrain::device {

/// Returns the number of GPUs this process can use: 0 without a driver, without CUDA in the build, or with
/// CUDA_VISIBLE_DEVICES empty.
int gpu_count();

/// Returns why existing GPUs cannot be used, for example an old driver; empty if there is no GPU or no driver.
std::string gpu_obstacle();

/// Returns whether this build contains GPU code.
bool built_with_cuda() noexcept;

/// Returns the device of a rank for `request` (auto, cpu, cuda): the CPU, or GPU number `local_rank`, or the only GPU
/// that the rank sees. Makes the GPU current for this thread, with a stream that can be captured, unlike the default
/// stream. Throws Error(usage) for an unknown request, Error(environment) for a missing or broken GPU. `auto` takes the
/// CPU only if there is no GPU at all.
at::Device choose_device(std::string_view request, int local_rank);

/// Returns the current GPU of this thread; the CPU in a build without CUDA.
at::Device current_gpu();

/// Facts about a device for the start page.
struct DeviceFacts {
  std::string name;         // "NVIDIA H200", or the CPU's model name
  std::string software;     // "driver 580.65, CUDA 13.0, cuDNN 9.15"; empty for a CPU
  int64_t total_bytes = 0;  // memory of the device, or of the host
  std::string uuid;         // of a GPU or a MIG instance
  int generation = 0;       // of a GPU: 90 for compute capability 9.0
};
DeviceFacts facts_of(at::Device device);

/// Waits until all work queued on the device is done. Does nothing on a CPU.
void synchronize(at::Device device);

/// Returns the memory of a GPU that this process can have: the free memory, and that of our allocator. Less than the
/// GPU has: CUDA's own data, cuDNN, NCCL and other processes take their part. 0 on a CPU, see host.hpp.
int64_t available_gpu_bytes(at::Device device);

/// Returns the peak of the bytes in tensors on a GPU since the last reset; 0 on a CPU, see host.hpp.
int64_t peak_allocated_bytes(at::Device device);
void reset_peak_allocated_bytes(at::Device device);

/// Excludes allocations of all threads on the GPU from that peak during its lifetime, for example while kernels are
/// compared.
class PeakExclusion {
 public:
  explicit PeakExclusion(at::Device device);
  PeakExclusion(const PeakExclusion&) = delete;
  PeakExclusion& operator=(const PeakExclusion&) = delete;
  ~PeakExclusion();

 private:
  at::Device device_;
};

/// Returns uninitialised bytes on the host, from which a GPU copies fast; undefined without a GPU, or if the system
/// refuses.
at::Tensor page_locked_bytes(int64_t bytes);

/// Gives a GPU's memory that no tensor holds back to the driver.
void free_cached_memory(at::Device device);

/// Does the same on any device, also with memory of the host that is kept for offloaded tensors, and resets the peak.
void release_unused(at::Device device);

/// Seeds the default generators of the CPU and of `device`, if it is a GPU.
void seed_generators(at::Device device, uint64_t seed);

/// Returns whether this thread's current stream is being captured: work is then recorded, not run, and the host may not
/// ask for random states.
bool is_capturing(at::Device device);

/// Returns the state of the default generator as a byte tensor on the CPU, for a checkpoint.
at::Tensor generator_state(at::Device device);
/// Throws Error(checkpoint) if `state` is not a state of this kind of device.
void set_generator_state(at::Device device, const at::Tensor& state);

}  // namespace gputrain::device
