// Steps between backward and update on the flat gradient: unscale, check, measure, clip. One pass over the gradient,
// and no wait for the device.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gputrain::optim {

struct GradientOptions {
  std::optional<at::Tensor> scale;  // 0-dim: factor of the loss (GradScaler::scale)
  std::optional<double> max_norm;   // clip to this 2-norm, as torch.nn.utils.clip_grad_norm_ does
  /// If each rank has a part of the gradient: sums a 0-dim double tensor over the ranks, in place.
  std::function<void(const at::Tensor&)> all_reduce_sum;
};

/// Device scalars of a gradient. The update unscales and clips by `divisor`, so that no extra pass is needed. A double
/// gradient (a precision for tests) is changed in place instead, because fused updates accept only float divisors.
struct GradientReport {
  at::Tensor norm;       // 0-dim double: 2-norm of the unscaled gradient before clipping; not finite if found_inf
  at::Tensor found_inf;  // [1] float: 1 if an element is infinite or NaN (or the norm overflows), else 0
  std::optional<at::Tensor> divisor;  // [1] float: the update must divide the gradient by it
};

/// Measures a gradient, or this rank's part of it, in flat pieces on any device. Call under NoGradGuard.
GradientReport measure_gradient(const std::vector<at::Tensor>& pieces, const GradientOptions& options);

}  // namespace gputrain::optim
