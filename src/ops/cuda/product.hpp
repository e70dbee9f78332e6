// Products of matrices in 16 bits, accumulated in fp32.
#pragma once

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cuda {

/// out [rows, columns] = a [rows, inner] b [inner, columns], or, where it adds, that and what `out` holds. a and b have
/// one type of 16 bits, out is fp32 or of their type. a and b are row-major, or the transposes of row-major matrices,
/// whose rows may lie apart; out is contiguous.
struct Product {
  at::Tensor a, b, out;
  bool adds = false;
};
void multiply(const Product& p);

}  // namespace gputrain::ops::cuda
