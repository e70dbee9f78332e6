// Gradients that a backward pass adds directly to a parameter's .grad.
#pragma once

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cuda {

/// Whether the backward pass can add to the parameter's .grad. Its gradient on the graph is then undefined; the
/// parameter's hooks still run.
inline bool has_place(const at::Tensor& parameter) {
  if (!parameter.is_leaf() || !parameter.grad().defined()) return false;
  return parameter.grad().is_contiguous() && parameter.grad().scalar_type() == at::kFloat;
}

}  // namespace gputrain::ops::cuda
