// Process-wide ATen switches that decide which kernels may run; set them once, before building the model.
#pragma once

#include <ATen/core/Tensor.h>

namespace gputrain::device {

struct Numerics {
  bool tf32 = false;           // fp32 GEMM and convolution may round operands to TF32 on a GPU
  bool deterministic = false;  // only kernels with bit-identical results; an operator without one throws
};

/// Sets all switches for a run on `device`, including those that other code may have changed. Throws Error(environment)
/// if deterministic kernels are wanted and the environment sets CUBLAS_WORKSPACE_CONFIG to a value that forbids them.
void apply(const Numerics& numerics, at::Device device);

}  // namespace gputrain::device
