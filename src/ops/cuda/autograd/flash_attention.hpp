// ATen's FlashAttention of texts that lie one after the other. Tests replace it by a CPU version.
#pragma once

#include <ATen/core/Tensor.h>

#include "gputrain/ops/attention.hpp"

namespace gputrain::ops::cuda {

/// Computes attention in options.texts: q [positions, heads, channels], k, v [positions, key heads, channels], 16 bits.
at::Tensor flash_attention_of_texts(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options);

/// Computes the same in any type, one text after the other. Waits for the device.
at::Tensor attention_text_by_text(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionOptions& options);

/// Computes attention of q [batch, heads, channels] to k and v [batch x room, key heads, channels], in memory that
/// options.room describes; 16 bits -> as q.
at::Tensor flash_attention_in_room(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const AttentionOptions& options);

}  // namespace gputrain::ops::cuda
