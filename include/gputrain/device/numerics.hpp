// Process-wide switches of ATen that decide which kernels may run; set once, before the model is built.
#pragma once

namespace gputrain::device {

struct Numerics {
  bool tf32 = false;           // fp32 GEMM and convolution may round operands to TF32 on a GPU
  bool deterministic = false;  // only kernels that give the same bits every time; an operator without one throws
};

/// Sets every switch, also those that other code may have moved. Throws Error(environment) when deterministic kernels
/// need a variable (CUBLAS_WORKSPACE_CONFIG) that is set to a value forbidding them.
void apply(const Numerics& numerics);

}  // namespace gputrain::device
