// Attention within texts that lie one after the other, by cuDNN, whose kernels use the matrix instructions of Hopper
// and Blackwell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/attention.hpp"
#include "packed_attention.hpp"

namespace gputrain::ops::cuda {

/// The properties on which a plan depends, besides the tensors.
struct TextsAttention {
  int64_t longest;  // rows of a text; a limit
  bool causal;
  int64_t window;  // as in AttentionOptions
  double scale;
};

/// Queries [rows, heads, channels], keys and values [rows, key heads, channels]. Their heads lie side by side, and
/// their rows at one distance from each other.
struct TextHeads {
  at::Tensor q, k, v;
};

/// Returns whether a plan may exist on this GPU. It is built, or refused, when it is first needed.
bool texts_attention_takes(const TextHeads& heads, const AttentionOptions& options);

/// Returns the places of the texts: lengths int32 [capacity], then six int64 [capacity + 1] with the begin of each
/// text, in elements of the queries, keys, values, results, logarithms, and gradients of keys. The capacity is a power
/// of two, so that few plans serve all batches. It costs no memory in the forward pass; FlashAttention's backward pass
/// takes 512 heads channels bytes of fp32 for each 1 of capacity.
std::vector<at::Tensor> text_places(const TextHeads& heads, const Texts& texts);

/// Computes y [rows, heads, channels], logarithms [rows, heads]. Throws NoKernel if cuDNN has no plan, here and below.
Attended texts_attention(const TextHeads& heads, const std::vector<at::Tensor>& places,
                         const TextsAttention& attention);

/// Computes the gradients of queries, keys and values, without gaps; dy is like y.
TextHeads texts_attention_gradient(const TextHeads& heads, const std::vector<at::Tensor>& places,
                                   const TextsAttention& attention, const Attended& found, const at::Tensor& dy);

}  // namespace gputrain::ops::cuda
