// Element-wise functions of tensors, not recorded on the autograd graph.
#pragma once

#include <ATen/core/Tensor.h>

#include "../kernels/activation.hpp"

namespace gputrain::ops::cuda {

/// Applies the activation to x, which must be contiguous; the result has its shape.
at::Tensor apply_activation(const at::Tensor& x, ActivationKind kind);
/// Returns the gradient of x from dy, the gradient of apply_activation(x). dy must be contiguous.
at::Tensor activation_gradient(const at::Tensor& x, const at::Tensor& dy, ActivationKind kind);
/// Computes the same in place of dy. x and dy [rows, width], with an even width. Returns the sums over rows, fp32
/// [width], or an undefined tensor unless `wants_sums`.
at::Tensor to_activation_gradient(const at::Tensor& x, const at::Tensor& dy, ActivationKind kind, bool wants_sums);

}  // namespace gputrain::ops::cuda
