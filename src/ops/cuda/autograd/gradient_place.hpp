// Gradients that a backward pass adds to where they are kept.
#pragma once

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cuda {

/// Whether a parameter's gradient has a place that it can be added to in the backward pass. What the pass hands on is
/// then undefined; hooks of the parameter are called all the same.
inline bool has_place(const at::Tensor& parameter) {
  if (!parameter.is_leaf() || !parameter.grad().defined()) return false;
  return parameter.grad().is_contiguous() && parameter.grad().scalar_type() == at::kFloat;
}

}  // namespace gputrain::ops::cuda
