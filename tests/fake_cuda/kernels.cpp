// Kernel launches: checked against the device's limits, then ignored.
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "fake_cuda.hpp"

namespace {

using namespace gputrain::fake_cuda;

struct Kernel {
  std::string name = "kernel";
  size_t shared_bytes = 48 << 10;  // dynamic shared memory it may request
};

Kernel& kernel_of(const void* function) {
  static auto* const all = new std::unordered_map<const void*, Kernel>;
  const std::lock_guard lock(mutex());
  return (*all)[function];
}

/// The launch configuration of <<<...>>>, kept between its two calls.
struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

std::string text_of(const dim3& size) {
  return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z);
}

cudaError_t launch(const void* function, const Configuration& asked, void** arguments) {
  const Kernel& kernel = kernel_of(function);
  const auto product = [](const dim3& size) { return uint64_t{size.x} * size.y * size.z; };
  const bool fits = product(asked.grid) > 0 && asked.grid.x <= 2147483647 && asked.grid.y <= 65535 &&
                    asked.grid.z <= 65535 && product(asked.block) > 0 && product(asked.block) <= 1024 &&
                    asked.block.z <= 64 && asked.shared_bytes <= kernel.shared_bytes;
  if (!fits) {
    return refuse(cudaErrorInvalidConfiguration, kernel.name + ": " + text_of(asked.grid) + " blocks of " +
                                                     text_of(asked.block) + " threads with " +
                                                     std::to_string(asked.shared_bytes) + " bytes");
  }
  if (const cudaError_t shortage = load_kernel(asked.stream)) return shortage;
  count("kernels");
  return enqueue(asked.stream, kernel.name, {}, keeps_ledger() ? cost_of_kernel(kernel.name, arguments) : Cost{});
}

}  // namespace

FAKE_CUDA void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
FAKE_CUDA void __cudaRegisterFatBinaryEnd(void**) {}
FAKE_CUDA void __cudaUnregisterFatBinary(void**) {}
FAKE_CUDA void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

FAKE_CUDA void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, void*, void*, void*,
                                      void*, int*) {
  kernel_of(function).name = name;
}

FAKE_CUDA cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

FAKE_CUDA unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

FAKE_CUDA cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  const Configuration& asked = configurations.back();
  *grid = asked.grid;
  *block = asked.block;
  *shared_bytes = asked.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = asked.stream;
  configurations.pop_back();
  return cudaSuccess;
}

FAKE_CUDA cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                         size_t shared_bytes, cudaStream_t stream) {
  return launch(kernel, {grid, block, shared_bytes, stream}, arguments);
}

FAKE_CUDA cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                                       cudaStream_t stream) {
  return launch(kernel, {grid, block, shared_bytes, stream}, arguments);
}

FAKE_CUDA cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* asked, const void* kernel, void** arguments) {
  return launch(kernel, {asked->gridDim, asked->blockDim, asked->dynamicSmemBytes, asked->stream}, arguments);
}

FAKE_CUDA cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value > 227 << 10) return refuse(cudaErrorInvalidValue, std::to_string(value) + " bytes of shared memory");
  kernel_of(kernel).shared_bytes = static_cast<size_t>(value);
  return cudaSuccess;
}
