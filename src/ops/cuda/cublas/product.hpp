// Products of matrices in 16 bits, accumulated in fp32, with what belongs before or after them in the same launch.
#pragma once

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cuda {

enum class Epilogue {
  none,
  bias,                // out = product + vector [columns]
  bias_gelu_tanh,      // aux = product + vector [columns], out = gelu_tanh(aux)
  gelu_tanh_gradient,  // out = product * gelu_tanh'(aux), vector [columns] = the sums of out's columns
  sums_of_a,           // vector [rows] = the sums of a's rows
  sums_of_b            // vector [columns] = the sums of b's columns
};

/// out [rows, columns] = a [rows, inner] b [inner, columns], or, where it adds, that and what `out` holds. a and b have
/// one type of 16 bits, out is fp32 or of their type. a and b are row-major, or the transposes of row-major matrices,
/// whose rows may lie apart; out is contiguous.
struct Product {
  at::Tensor a, b, out;
  bool adds = false;  // with no epilogue but sums
  Epilogue epilogue = Epilogue::none;
  at::Tensor vector = {};  // of out's type
  at::Tensor aux = {};     // as out
};
void multiply(const Product& p);

/// The epilogue of a product whose plain one is in `out`, by ATen: what multiply() does where cuBLASLt offers none.
void finish_by_aten(const Product& p);

}  // namespace gputrain::ops::cuda
