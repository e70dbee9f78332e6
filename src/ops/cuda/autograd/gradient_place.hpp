// Gradients that a backward pass adds directly to a parameter's .grad.
#pragma once

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cuda {

/// Returns whether the backward pass can add to the parameter's .grad. Its gradient on the graph is then undefined; the
/// parameter's hooks still run. The .grad of a bf16 parameter is bf16.
inline bool has_place(const at::Tensor& parameter) {
  if (!parameter.is_leaf() || !parameter.grad().defined()) return false;
  const at::ScalarType type = parameter.grad().scalar_type();
  return parameter.grad().is_contiguous() && (type == at::kFloat || type == at::kBFloat16);
}

}  // namespace gputrain::ops::cuda
