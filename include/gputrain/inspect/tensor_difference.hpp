// How far apart two tensors are, element by element.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::app {

struct TensorDifference {
  int64_t elements = 0;
  int64_t differing = 0;  // bit for bit: -0 is not 0
  /// The largest |a - b|, and |a - b| / max(|a|, |b|); infinite where only one of the two is NaN or infinite.
  double largest_absolute = 0, largest_relative = 0;

  /// Takes in another tensor's difference.
  void add(const TensorDifference& other);
};

/// Both on the CPU, contiguous, of one dtype and shape.
TensorDifference difference_between(const at::Tensor& a, const at::Tensor& b);

}  // namespace gputrain::app
