// Operators by kernels of our own on a GPU, on the autograd graph. Each function makes the way that PathChoice compares
// with ATen's; it is empty in a build without CUDA, and where the kernels do not take the tensors.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/activation.hpp"
#include "gputrain/ops/normalization.hpp"
#include "path_choice.hpp"

namespace gputrain::ops::gpu {

/// Whether this tensor is where our kernels could take it: anything else costs no further look.
bool is_here(const at::Tensor& x);

/// Inputs {x, weight, bias, residual}, the last two may be undefined -> {norm(z), z}, z = dropout(x) + residual, the
/// latter and dropout only with a residual.
Way norm(const Tensors& inputs, double eps, bool centred, double dropout);

/// {x [..., in], weight, bias, the weight's copy, the bias's} -> {x matrix + bias [..., out]}: what is computed in 16
/// bits from the copies, with gradients of weight and bias in fp32. The weight is [out, in] or [in, out]; a bias may be
/// undefined, and a copy [out, in] may have rows of zeros that the weight has not. A weight's gradient goes straight to
/// its `.grad`, where it has one, and is then undefined on the graph.
Way linear(const Tensors& inputs, bool in_out);

/// {x, weight 1, bias 1, weight 2, bias 2, their copies in this order} -> {a dense layer of the activation of a dense
/// layer}: as linear().
Way feed_forward(const Tensors& inputs, bool in_out, Activation activation);

/// {packed [batch, time, (heads + 2 key heads) channels]: the heads of queries, keys, values} -> {y [batch, time, heads
/// channels]}.
Way attention(const at::Tensor& packed, int64_t heads, int64_t key_heads, bool causal, double scale);

/// {weight [rows, channels], tokens} -> {their rows}; the gradient as linear()'s of a weight.
Way embedding(const at::Tensor& weight, const at::Tensor& tokens);

Way curve(const at::Tensor& x, Activation activation);     // {x} -> {y}
Way swiglu(const at::Tensor& gate, const at::Tensor& up);  // {gate, up} -> {y}
Way rotate(const at::Tensor& x);                           // {x, cosine, sine} -> {y}

/// {logits [rows, columns], targets [rows], weight} -> {weighted sum, sum}; overwrites logits that require a gradient.
Way cross_entropy(const at::Tensor& logits, int64_t classes, double smoothing);

/// {x, residual, weight, bias, running mean, running variance}, in training -> {y}; moves the running statistics.
Way batch_norm(const Tensors& inputs, const BatchNormOptions& options, bool relu);

/// A convolution and the batch norm in training after it.
struct ConvNormShape {
  int64_t stride = 1, padding = 0;
  BatchNormOptions norm;
};
/// {x, residual, weight and norm's weight and bias of each layer, running mean and variance of each layer} -> {y}:
/// layer after layer, each with its ReLU; before the last one, which may be left out, the residual is added, if it is
/// defined. The sizes are those that the layers ask for.
Way conv_norms(const Tensors& inputs, const std::vector<ConvNormShape>& layers, bool last_relu);

/// {x} -> {y}: of channels-last images, by windows of 3 x 3 with stride 2 and padding 1.
Way max_pool(const at::Tensor& x, int64_t kernel, int64_t stride, int64_t padding);

}  // namespace gputrain::ops::gpu
