// Properties of one or more fake GPUs, with the numbers of an H200.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "fake_cuda.hpp"

namespace {

using namespace gputrain::fake_cuda;

thread_local int current = 0;

int devices() { return static_cast<int>(setting("PRETEND_GPUS", 1)); }

}  // namespace

FAKE_CUDA cudaError_t cudaGetDeviceCount(int* number) {
  *number = devices();
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= devices())
    return refuse(cudaErrorInvalidDevice, "GPU " + std::to_string(device) + " is made current");
  current = device;
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

FAKE_CUDA cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  std::strcpy(static_cast<char*>(properties->name), "NVIDIA H200");
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  properties->pciBusID = device + 1;
  properties->totalGlobalMem = setting("PRETEND_GPU_MEMORY", size_t{141} << 30);
  properties->major = 9;
  properties->multiProcessorCount = 132;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 2147483647;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  properties->l2CacheSize = 50 << 20;
  properties->memoryBusWidth = 6144;
  properties->textureAlignment = 512;
  properties->unifiedAddressing = 1;
  properties->concurrentKernels = 1;
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, device);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      break;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxGridDimX:
      *value = properties.maxGridSize[0];
      break;
    case cudaDevAttrMaxGridDimY:
      *value = properties.maxGridSize[1];
      break;
    case cudaDevAttrMaxGridDimZ:
      *value = properties.maxGridSize[2];
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(properties.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrClockRate:
      *value = 1980000;
      break;
    case cudaDevAttrMemoryClockRate:
      *value = 3201000;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = properties.memoryBusWidth;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", static_cast<unsigned>(device) + 1);
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaDeviceSynchronize() {
  count("waits: cudaDeviceSynchronize");
  if (const cudaError_t refusal = may_wait("cudaDeviceSynchronize")) return refusal;
  wait_for_hang();
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 64;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads,
                                                                             size_t, unsigned) {
  *blocks = std::max(1, 2048 / std::max(threads, 1));
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                                    size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared, 0);
}
