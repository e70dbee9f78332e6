// Element-wise functions of tensors, not recorded on the autograd graph.
#pragma once

#include <ATen/core/Tensor.h>

#include "../kernels/activation.hpp"

namespace gputrain::ops::cuda {

/// x must be contiguous; the result has its shape.
at::Tensor curved(const at::Tensor& x, Curve curve);
/// Gradient of x from dy, the gradient of curved(x). dy must be contiguous.
at::Tensor curve_gradient(const at::Tensor& x, const at::Tensor& dy, Curve curve);

}  // namespace gputrain::ops::cuda
