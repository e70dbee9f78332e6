// Launches kernels.cu. Takes raw pointers, so that nvcc does not read LibTorch headers.
#pragma once

#include <cuda_runtime_api.h>

namespace probe {

void launch_copy(const void* from, void* to, long bytes, int blocks, cudaStream_t stream);

}  // namespace probe
