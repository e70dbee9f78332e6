// Attention on one tensor of queries, keys and values; its gradient is one tensor. Tests replace it by a CPU version.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cuda {

struct PackedAttention {
  int64_t heads, key_heads;  // key_heads divides heads: each key head serves a group of neighbours
  bool causal;
  double scale;
};

struct Attended {
  at::Tensor y;           // [batch, time, heads channels], type of the packed tensor
  at::Tensor logarithms;  // [batch, heads, time] in fp32: logarithms of the sums of exponentials
};

/// Computes attention for packed [batch, time, (heads + 2 key heads) channels] in 16 bits, contiguous: q, k, v.
Attended packed_attention(const at::Tensor& packed, const PackedAttention& attention);

/// Computes the gradient of `packed`; dy has the shape of y.
at::Tensor packed_attention_gradient(const at::Tensor& packed, const PackedAttention& attention, const Attended& found,
                                     const at::Tensor& dy);

}  // namespace gputrain::ops::cuda
