// Context parallelism: the ranks of a group share the positions of each text, so that a rank has the activations of its
// part only. Attention gathers the keys and values of the whole text (Llama Team, "The Llama 3 herd of models",
// arXiv:2407.21783, section 3.3.2): they are few beside the other activations, the more so with grouped queries.
//
// Of 2 * ranks equal chunks of a text, a rank has the one with its own number and the one that is as far from the end:
// causal attention then costs every rank the same.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/group.hpp"
#include "gputrain/ops/attention.hpp"

namespace gputrain::ops {

/// Returns this rank's part of a tensor [batch, time]: [batch, positions of the rank]. If need be, the time is first
/// filled up with `padding` to a multiple of 2 * ranks.
at::Tensor text_part(const at::Tensor& whole, const comm::Group& group, int64_t padding);

/// Computes attention() of the queries of this rank's part with the keys and values of the whole text -> as q. Heads
/// and options.positions are those of the part. Causal only. Every rank of the group must call, and run the backward
/// pass.
at::Tensor context_attention(const Heads& heads, const AttentionOptions& options, comm::Group& group);

}  // namespace gputrain::ops
