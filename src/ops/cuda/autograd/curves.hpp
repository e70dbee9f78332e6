// Element-wise functions of tensors, off the autograd graph.
#pragma once

#include <ATen/core/Tensor.h>

#include "../kernels/activation.hpp"

namespace gputrain::ops::cuda {

/// x contiguous -> as x
at::Tensor curved(const at::Tensor& x, Curve curve);
/// The gradient of x, where dy, contiguous, is that of curved(x).
at::Tensor curve_gradient(const at::Tensor& x, const at::Tensor& dy, Curve curve);

}  // namespace gputrain::ops::cuda
