// The launcher of kernels.cu, on raw pointers so that nvcc reads no LibTorch header.
#pragma once

#include <cuda_runtime_api.h>

namespace probe {

void launch_copy(const void* from, void* to, long bytes, int blocks, cudaStream_t stream);

}  // namespace probe
