// The mask of the keys to which queries attend.
#pragma once

#include <ATen/core/Tensor.h>

#include "gputrain/ops/attention.hpp"

namespace gputrain::ops {

/// Returns whether a query sees other keys than all of them or, if causal, those up to its place.
bool needs_mask(const at::Tensor& q, const at::Tensor& k, const AttentionOptions& options);

/// Makes the mask for attention that needs one: bool [batch or 1, 1, time or 1, key time], true where a query attends
/// to a key. Each query, of padding too, attends to one key at least.
at::Tensor visible_keys(const at::Tensor& q, const at::Tensor& k, const AttentionOptions& options);

}  // namespace gputrain::ops
