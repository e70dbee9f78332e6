// Elementwise difference between two tensors.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::app {

struct TensorDifference {
  int64_t elements = 0;
  int64_t differing = 0;  // compared bit for bit: -0 differs from 0
  /// Largest |a - b|, and largest |a - b| / max(|a|, |b|); infinite if only one of the two is NaN or infinite.
  double largest_absolute = 0, largest_relative = 0;

  /// Merges the difference of another tensor into this one.
  void add(const TensorDifference& other);
};

/// Compares two tensors, which must be contiguous, on the CPU, with equal dtype and shape.
TensorDifference difference_between(const at::Tensor& a, const at::Tensor& b);

}  // namespace gputrain::app
