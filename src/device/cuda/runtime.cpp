#include "gputrain/device/runtime.hpp"

#include <fstream>
#include <string>

#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "../peak.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/gpu_allocator.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/device/host_allocator.hpp"
#include "gputrain/device/offload.hpp"

namespace gputrain::device {
namespace {

// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build ...": the first word of digits and
// dots.
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  }
  return "unknown";
}

/// Returns a CUDA version: 13000 is "13.0".
std::string version_text(long number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string software_line() {
  const long cudnn = at::Context::versionRuntimeCuDNN();
  return "driver " + driver_version() + ", CUDA " + version_text(at::Context::versionCUDART()) + ", cuDNN " +
         std::to_string(cudnn / 10000) + "." + std::to_string(cudnn % 10000 / 100);
}

std::string hex(const cudaUUID_t& uuid) {
  std::string text;
  for (const char byte : uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

size_t aggregate() { return static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE); }

/// Returns the peak. A process uses one GPU: the device of the first call.
Peak& peak_of(at::Device device) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  static auto& peak =
      *new Peak([device] { return allocator::getDeviceStats(device.index()).allocated_bytes[aggregate()].peak; },
                [device] { allocator::resetPeakStats(device.index()); });
  return peak;
}

}  // namespace

void set_gpu_allocator(const std::string& settings) {
  try {
    c10::cuda::CUDACachingAllocator::setAllocatorSettings(settings);
  } catch (const std::exception& failure) {
    const auto* of_torch = dynamic_cast<const c10::Error*>(&failure);
    throw Error(ExitCode::usage, {.what = std::string("the GPU's memory allocator refuses these settings: ") +
                                          (of_torch != nullptr ? of_torch->what_without_backtrace() : failure.what()),
                                  .where = "alloc_conf: " + settings});
  }
}

std::string gpu_obstacle() {
  int count = 0, newest = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());
  static_cast<void>(cudaDriverGetVersion(&newest));  // 0: no driver
  if (error == cudaSuccess || error == cudaErrorNoDevice || newest == 0) return {};
  if (error != cudaErrorInsufficientDriver) return cudaGetErrorString(error);
  return "the driver " + driver_version() + " supports CUDA up to " + version_text(newest) +
         ", but LibTorch needs CUDA " + version_text(at::Context::versionCUDART());
}

int gpu_count() { return c10::cuda::device_count(); }
bool built_with_cuda() noexcept { return true; }
at::Device current_gpu() { return {at::kCUDA, c10::cuda::current_device()}; }

DeviceFacts facts_of(at::Device device) {
  if (device.is_cpu()) return {.name = cpu_name(), .software = "", .total_bytes = host_memory_bytes(), .uuid = ""};
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device.index()));
  return {.name = static_cast<const char*>(properties.name),
          .software = software_line(),
          .total_bytes = static_cast<int64_t>(properties.totalGlobalMem),
          .uuid = hex(properties.uuid),
          .generation = 10 * properties.major + properties.minor};
}

void synchronize(at::Device device) {
  if (device.is_cpu()) return;
  const c10::cuda::CUDAGuard guard(device);
  c10::cuda::device_synchronize();
}

bool is_capturing(at::Device device) {
  return device.is_cuda() && c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

int64_t available_gpu_bytes(at::Device device) {
  if (device.is_cpu()) return 0;
  const c10::cuda::CUDAGuard guard(device);
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  return static_cast<int64_t>(free) + stats.reserved_bytes[aggregate()].current;
}

int64_t peak_allocated_bytes(at::Device device) { return device.is_cpu() ? 0 : peak_of(device).bytes(); }

void reset_peak_allocated_bytes(at::Device device) {
  if (!device.is_cpu()) peak_of(device).forget();
}

PeakExclusion::PeakExclusion(at::Device device) : device_(device) {
  if (!device_.is_cpu()) peak_of(device_).pause();
}

PeakExclusion::~PeakExclusion() {
  if (!device_.is_cpu()) peak_of(device_).resume();
}

at::Tensor page_locked_bytes(int64_t bytes) {
  void* memory = nullptr;
  if (cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocDefault) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return {};
  }
  return at::from_blob(
      memory, {bytes}, [](void* begin) { static_cast<void>(cudaFreeHost(begin)); },
      at::TensorOptions().dtype(at::kByte));
}

void free_cached_memory(at::Device device) {
  if (device.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
}

void release_unused(at::Device device) {
  synchronize(device);
  give_back_offload_memory();
  if (device.is_cpu()) return forget_host_peak();
  c10::cuda::CUDACachingAllocator::emptyCache();
  reset_peak_allocated_bytes(device);
}

}  // namespace gputrain::device
