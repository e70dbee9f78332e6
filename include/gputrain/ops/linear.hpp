// Products of activations and weights: dense layers, convolutions, look-ups. Operands are read in the policy's compute
// type: those of a weight from its working copy while that is read, else by a cast on the autograd graph; either way
// its gradient arrives in the type of the weight.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/activation.hpp"
#include "gputrain/ops/precision.hpp"

namespace gputrain::ops {

/// The tensor itself when it already has this type.
at::Tensor cast(const at::Tensor& tensor, at::ScalarType type);

/// What a product reads of a parameter: its copy of this type, in its place on the autograd graph, or a cast.
at::Tensor operand(const at::Tensor& parameter, at::ScalarType type);

/// x [..., in], weight [out, in], bias [out] or undefined -> [..., out].
at::Tensor linear(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// As `linear` with the weight stored [in, out], the layout of GPT-2's files.
at::Tensor linear_in_out(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// Two dense layers with an activation between: one operator, for what can be done in one go on a GPU.
struct FeedForwardLayers {
  at::Tensor weight_1, bias_1, weight_2, bias_2;  // as `linear`'s, or both weights as `linear_in_out`'s
  bool in_out = false;
  Activation activation = Activation::gelu_tanh;
};
at::Tensor feed_forward(const Policy& policy, const at::Tensor& x, const FeedForwardLayers& layers);

/// As `linear` without bias, the result widened with columns of zeros to `columns`: matrix units like multiples of 64.
at::Tensor linear_padded(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, int64_t columns);

/// x [batch, in, height, width], weight [out, in / groups, kernel, kernel], bias [out] or undefined.
at::Tensor conv2d(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  int64_t stride, int64_t padding, int64_t dilation = 1, int64_t groups = 1);

/// tokens int64 [...], weight [rows, channels] -> [..., channels] in the type of the weight.
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight);

}  // namespace gputrain::ops
