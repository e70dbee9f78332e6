// Convolutions each followed by its batch norm: one operator, for what can be done in one go on a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/normalization.hpp"
#include "gputrain/ops/precision.hpp"

namespace gputrain::ops {

struct ConvNormLayer {
  at::Tensor weight, bias;  // as conv2d() takes them
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
  at::Tensor norm_weight, norm_bias, running_mean, running_var;  // as batch_norm() takes them
  BatchNormOptions norm;
};

enum class LastRelu { no, yes };

/// x [batch, channels, height, width] through conv2d(), batch_norm() and a ReLU, layer after layer. In the last one the
/// residual, shaped as the result or undefined, is added before the ReLU; only without a residual can that be left out.
at::Tensor conv_norms(const Policy& policy, const at::Tensor& x, const std::vector<ConvNormLayer>& layers,
                      const at::Tensor& residual, LastRelu last_relu);

}  // namespace gputrain::ops
