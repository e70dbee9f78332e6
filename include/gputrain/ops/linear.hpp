// Products of activations and weights: dense layers, convolutions, look-ups. Operands have the policy's compute type. A
// weight is read from its working copy while a Reading of it lives, else through a cast on the autograd graph; its
// gradient has the weight's type in both cases.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/activation.hpp"
#include "gputrain/ops/precision.hpp"

namespace gputrain::ops {

/// Returns the tensor itself if it already has this type.
at::Tensor cast(const at::Tensor& tensor, at::ScalarType type);

/// Returns a parameter as operand of a product: its copy of this type, placed on the autograd graph, or else a cast.
at::Tensor operand(const at::Tensor& parameter, at::ScalarType type);

/// Computes a dense layer: x [..., in], weight [out, in], bias [out] or undefined -> [..., out].
at::Tensor linear(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// Computes `linear` with a weight that is stored [in, out], as in GPT-2's files.
at::Tensor linear_in_out(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// Computes several layers without bias on the same x. A GPU computes them as one product if the weights lie one after
/// the other in memory.
std::vector<at::Tensor> linear_each(const Policy& policy, const at::Tensor& x, const std::vector<at::Tensor>& weights);

/// Splits y [..., sum of columns] -> a view of each block of columns. On a GPU, gradients that lie side by side in one
/// tensor, as those of swiglu(), become y's gradient without a copy.
std::vector<at::Tensor> split_columns(const at::Tensor& y, const std::vector<int64_t>& columns);

/// Two dense layers with an activation between: one operator, because a GPU can fuse the steps.
struct FeedForwardLayers {
  at::Tensor weight_1, bias_1, weight_2, bias_2;  // as in `linear`, or both weights as in `linear_in_out`
  bool in_out = false;
  Activation activation = Activation::gelu_tanh;
};
at::Tensor feed_forward(const Policy& policy, const at::Tensor& x, const FeedForwardLayers& layers);

/// Computes `linear`, padded with zero columns to `columns`: matrix units prefer multiples of 64.
at::Tensor linear_padded(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         int64_t columns);

/// Convolves x [batch, in, height, width] with weight [out, in / groups, kernel, kernel], bias [out] or undefined.
at::Tensor conv2d(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  int64_t stride, int64_t padding, int64_t dilation = 1, int64_t groups = 1);

/// Convolves, transposed, x [batch, in, height, width] with weight [in, out, stride, stride], bias [out] -> [batch,
/// out, stride height, stride width].
at::Tensor conv_transpose2d(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            int64_t stride);

/// Looks up tokens int64 [...] in weight [rows, channels] -> [..., channels] in the weight's type.
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight);

}  // namespace gputrain::ops
