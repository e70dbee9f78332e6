// What is done with the flat gradient between backward and update: unscale, test, measure, clip. One pass over the
// gradient, and no wait for the device.
#pragma once

#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>

namespace gputrain::optim {

struct GradientOptions {
  std::optional<at::Tensor> scale;  // 0-dim: what the loss was multiplied by (GradScaler::scale)
  std::optional<double> max_norm;   // clip to this 2-norm, as torch.nn.utils.clip_grad_norm_ does
  /// Where each rank has a part of the gradient: adds a 0-dim double tensor up over the ranks, in place.
  std::function<void(const at::Tensor&)> add_up_over_ranks;
};

/// Device scalars about a gradient. The gradient itself is unscaled and clipped by the update, which takes `divisor`,
/// so that no pass of its own is spent on it; a double gradient (a precision for tests) is changed in place instead,
/// because fused updates know float divisors only.
struct GradientReport {
  at::Tensor norm;       // 0-dim double: the 2-norm of the unscaled gradient before clipping; not finite when found_inf
  at::Tensor found_inf;  // [1] float: 1 when an element is infinite or NaN (or the norm overflows), else 0
  std::optional<at::Tensor> divisor;  // [1] float: what the gradient remains to be divided by
};

/// Reports on a flat gradient, or this rank's part of it, on any device. Call under NoGradGuard.
GradientReport measure_gradient(const at::Tensor& flat, const GradientOptions& options);

}  // namespace gputrain::optim
