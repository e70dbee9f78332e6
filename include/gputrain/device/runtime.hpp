// The device a rank computes on: choosing it, its facts for the start page, its memory readings, its random state.
//
// Two implementations stand behind this header, for builds with and without CUDA; a CUDA build on a machine without a
// GPU behaves like the other one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace gputrain::device {

/// GPUs this process can use: 0 without a driver, without CUDA in the build, or with CUDA_VISIBLE_DEVICES empty.
int gpu_count();

/// Why GPUs that are here cannot be used, such as a driver that is too old; empty: there are none, or no driver.
std::string gpu_obstacle();

/// Whether this build contains GPU code at all.
bool built_with_cuda() noexcept;

/// The device of a rank for `request` (auto, cpu, cuda): GPU number `local_rank`, or the only one that the rank can
/// see, made current for this thread with a stream that can be recorded, which the default one cannot; or the CPU.
/// Throws Error(usage) for an unknown request, Error(environment) for a GPU that is not there or does not work; `auto`
/// takes the CPU only where there is no GPU at all.
at::Device choose_device(std::string_view request, int local_rank);

/// The GPU that is current for this thread; the CPU in a build without GPU code.
at::Device current_gpu();

/// What the start page says about a device.
struct DeviceFacts {
  std::string name;         // "NVIDIA H200", or the CPU's model name
  std::string software;     // "driver 580.65, CUDA 13.0, cuDNN 9.15"; empty for a CPU
  int64_t total_bytes = 0;  // memory of the device, or of the host
  std::string uuid;         // of a GPU, or of its part that is one to programs
  int generation = 0;       // of a GPU: 90 for compute capability 9.0
};
DeviceFacts facts_of(at::Device device);

/// Waits until everything queued on the device is done. Nothing to do for a CPU.
void synchronize(at::Device device);

/// Most bytes that tensors held at one time on a GPU since the last reset; 0 for a CPU, see host.hpp.
int64_t peak_allocated_bytes(at::Device device);
void reset_peak_allocated_bytes(at::Device device);

/// While one lives, what any thread takes on the GPU is left out of that peak: to compare kernels once, for instance.
class OutOfPeak {
 public:
  explicit OutOfPeak(at::Device device);
  OutOfPeak(const OutOfPeak&) = delete;
  OutOfPeak& operator=(const OutOfPeak&) = delete;
  ~OutOfPeak();

 private:
  at::Device device_;
};

/// Gives back to the system what tensors no longer hold, and forgets the peak.
void release_unused(at::Device device);

/// Seeds the default generators of the CPU and, if it is a GPU, of `device`.
void seed_generators(at::Device device, uint64_t seed);

/// The default generator's state as a byte tensor on the CPU, to be kept in a checkpoint.
at::Tensor generator_state(at::Device device);
/// Throws Error(checkpoint) when `state` is no state of this device's kind.
void set_generator_state(at::Device device, const at::Tensor& state);

}  // namespace gputrain::device
