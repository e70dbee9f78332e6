// Collectives between the layers of ranks that share them (tensor parallelism: Shoeybi et al., "Megatron-LM",
// arXiv:1909.08053). A first layer gives each rank a part of its outputs, and the second adds up what the ranks' parts
// give. A null group: this rank has the layers alone. Every rank of the group must call each function, and run the
// backward pass.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/group.hpp"
#include "gputrain/ops/cross_entropy.hpp"

namespace gputrain::ops {

/// Returns x as it is, for the parts of all ranks to read. The gradient is the sum over the ranks.
at::Tensor split_input(const at::Tensor& x, comm::Group* group);

/// Sums the outputs of the ranks' parts, on all ranks. The gradient goes to each of them.
at::Tensor split_sum(const at::Tensor& part, comm::Group* group);

/// Computes cross_entropy() of logits whose columns the ranks share: this rank's begin at class `first`. The result is
/// the same on all ranks. Does not change the logits.
Loss split_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options,
                         int64_t first, comm::Group& group);

}  // namespace gputrain::ops
