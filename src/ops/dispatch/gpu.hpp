// Operators by our own GPU kernels, on the autograd graph. Each function returns the way that KernelAutotuner compares
// with ATen's. The way is empty in builds without CUDA and for tensors that the kernels do not accept.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/activation.hpp"
#include "gputrain/ops/attention.hpp"
#include "gputrain/ops/normalization.hpp"
#include "gputrain/ops/quantized.hpp"
#include "kernel_autotuner.hpp"

namespace gputrain::ops::gpu {

/// Returns whether our kernels may accept this tensor: a quick first check.
bool is_here(const at::Tensor& x);

/// Inputs {x, weight, bias, residual}; bias and residual may be undefined. -> {norm(z), z} with z = dropout(x) +
/// residual. Dropout and the result z need a residual.
OpImpl norm(const Tensors& inputs, double eps, bool centred, double dropout);

/// {x [..., in], weight, bias, copy of the weight, copy of the bias} -> {x matrix + bias [..., out]}. Reads the 16-bit
/// copies; gradients of weight and bias are fp32. The weight is [out, in] or [in, out]. The bias may be undefined, and
/// a copy [out, in] may have extra rows of zeros. A weight's gradient is added to its `.grad`, if defined, and is then
/// undefined on the graph.
OpImpl linear(const Tensors& inputs, bool in_out);

/// {x [..., in], weights [out of each, in], their copies} -> {y of each}: layers without bias, as one product. Only for
/// copies that lie one after the other in one storage. Gradients as in linear().
OpImpl linear_each(const Tensors& inputs);

/// Computes ops::split_columns() of a tensor that is_here().
Tensors split_columns(const at::Tensor& y, const std::vector<int64_t>& columns);

/// Computes x [blocks, rows, inner] times the matrix of each block's group, or its transpose; `matrices` [groups, rows,
/// columns], whose last two dims are contiguous. Undefined if it does not take these tensors.
at::Tensor grouped_products(const at::Tensor& x, const at::Tensor& matrices, const at::Tensor& groups, bool transposes);

/// Adds the sum of dy^T x over the blocks of each group to `sums` [groups, out, in] fp32; dy [blocks, rows, out], x
/// [blocks, rows, in]. Returns false, and adds nothing, if it does not take these tensors.
bool add_grouped_products(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& groups, const at::Tensor& sums);

/// {x, weight 1, bias 1, weight 2, bias 2, their copies in this order} -> {layer 2(activation(layer 1(x)))}; operands
/// as in linear().
OpImpl feed_forward(const Tensors& inputs, bool in_out, Activation activation);

/// {packed [batch, time, (heads + 2 key heads) channels]: queries, keys, values} -> {y [batch, time, heads channels]}.
OpImpl attention(const at::Tensor& packed, int64_t heads, int64_t key_heads, bool causal, double scale);

/// ATen's FlashAttention of queries that are the last positions of the keys: its causal mask ends at the last key. Head
/// counts may differ. Undefined if it does not take these tensors.
at::Tensor attention_to_earlier(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const AttentionOptions& options);

/// Computes attention() of a query of each row in options.room, 16 bits. Undefined if it does not take these tensors.
at::Tensor attention_in_room(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionOptions& options);

/// Computes attention() within each of options.texts, of as many keys as queries; no tensor of time x time is made.
/// Undefined if it does not take these tensors.
at::Tensor attention_of_texts(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionOptions& options);

/// quantize() and dequantize() of gputrain/ops/quantized.hpp, of tensors that are here; quantize() writes plain scales.
void quantize(const at::Tensor& matrix, const Quantized4& into);
void dequantize(const Quantized4& from, at::ScalarType stored, const at::Tensor& into);
void quantize(const at::Tensor& matrix, const QuantizedRows& into);
void dequantize(const QuantizedRows& from, at::ScalarType stored, const at::Tensor& into);

/// {weight [rows, channels], tokens} -> {the tokens' rows}; the weight's gradient as in linear().
OpImpl embedding(const at::Tensor& weight, const at::Tensor& tokens);

OpImpl activation(const at::Tensor& x, Activation activation);  // {x} -> {y}
OpImpl swiglu(const at::Tensor& gate, const at::Tensor& up);    // {gate, up} -> {y}
/// {x, cosine, sine} -> {y}. The tables: [time, half], or [batch, 1, time, half].
OpImpl rotate(const at::Tensor& x);

/// {logits [rows, columns], targets [rows], weight} -> {weighted sum, sum}; overwrites logits that require a gradient.
OpImpl cross_entropy(const at::Tensor& logits, int64_t classes, double smoothing);
/// {logits [rows, columns], targets [rows]} -> {log-probabilities [rows]}; the backward pass overwrites the logits.
OpImpl log_probs(const at::Tensor& logits, int64_t classes);

/// {x, residual, weight, bias, running mean, running variance} -> {y}, in training; updates the running statistics.
OpImpl batch_norm(const Tensors& inputs, const BatchNormOptions& options, bool relu);

/// A convolution and the batch norm after it, in training.
struct ConvNormShape {
  int64_t stride = 1, padding = 0;
  BatchNormOptions norm;
};
/// {x, residual, weight, norm weight and norm bias of each layer, running mean and variance of each layer} -> {y}. Each
/// layer ends with a ReLU; the last ReLU is optional, and the residual, if defined, is added before it. Sizes must
/// match the layers.
OpImpl conv_norms(const Tensors& inputs, const std::vector<ConvNormShape>& layers, bool last_relu);

/// {x} -> {y}: channels-last images, 3 x 3 windows with stride 2 and padding 1.
OpImpl max_pool(const at::Tensor& x, int64_t kernel, int64_t stride, int64_t padding);

}  // namespace gputrain::ops::gpu
