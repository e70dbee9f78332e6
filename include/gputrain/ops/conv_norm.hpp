// Convolutions, each followed by its batch norm: one operator, because a GPU can fuse the steps.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/normalization.hpp"
#include "gputrain/ops/precision.hpp"

namespace gputrain::ops {

struct ConvNormLayer {
  at::Tensor weight, bias;  // arguments of conv2d()
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
  at::Tensor norm_weight, norm_bias, running_mean, running_var;  // arguments of batch_norm()
  BatchNormOptions norm;
};

enum class LastRelu { no, yes };

/// Applies conv2d(), batch_norm() and a ReLU per layer to x [batch, channels, height, width]. The residual (shape of
/// the result, or undefined) is added before the last ReLU, which is optional only without a residual.
at::Tensor conv_norms(const Policy& policy, const at::Tensor& x, const std::vector<ConvNormLayer>& layers,
                      const at::Tensor& residual, LastRelu last_relu);

}  // namespace gputrain::ops
