// Products of 16-bit matrices, accumulated in fp32, with operations before or after them in the same launch.
#pragma once

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cuda {

enum class Epilogue {
  none,
  bias,            // out = product + vector [columns]
  bias_gelu_tanh,  // aux = product + vector [columns], out = gelu_tanh(aux)
  sums_of_a = 4,   // vector [rows] = the sums of a's rows; stored choices name it by this number
  sums_of_b        // vector [columns] = the sums of b's columns
};

/// out [rows, columns] = a [rows, inner] b [inner, columns], plus the old `out` if `adds`. a and b have the same 16-bit
/// type; out is fp32 or of that type. a and b are row-major, or transposes of row-major matrices, with any distance
/// between rows; out is contiguous.
struct GemmCall {
  at::Tensor a, b, out;
  bool adds = false;  // only with Epilogue::none or sums
  Epilogue epilogue = Epilogue::none;
  at::Tensor vector = {};  // type of out
  at::Tensor aux = {};     // shape and type of out
};
void gemm(const GemmCall& p);

/// Computes the epilogue by ATen from the plain product in `out`: for gemm(), if cuBLASLt does not support it.
void finish_by_aten(const GemmCall& p);

}  // namespace gputrain::ops::cuda
