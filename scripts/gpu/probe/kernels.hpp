// Launchers of kernels.cu, on raw pointers so that nvcc reads no LibTorch header.
#pragma once

#include <cuda_runtime_api.h>

namespace probe {

void launch_copy(const void* from, void* to, long bytes, int blocks, cudaStream_t stream);

/// All bf16; x, residual, sum, out: [rows, 768], scale, shift: [768].
struct AddNorm {
  const void *x, *residual, *scale, *shift;
  void *sum, *out;
  int rows;
};
void launch_add_norm_768(const AddNorm& p, cudaStream_t stream);

}  // namespace probe
