// All ranks hold the same model: checked, made so, and checked again. Every rank must call each of these.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/device/arena.hpp"

namespace gputrain::parallel {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Compares names, shapes and types over the ranks, which a collective would not survive if they differed. Throws
/// Error(usage) naming the first rank that differs from rank 0.
void check_same_layout(comm::ProcessGroups& groups, const device::Arena& arena, const NamedTensors& buffers);

/// Gives every rank rank 0's tensors. Buffers such as batch norm's averages drift apart in training: do this to them
/// before an evaluation or a save.
void broadcast(comm::ProcessGroups& groups, const device::Arena& arena, const NamedTensors& buffers);
void broadcast(comm::ProcessGroups& groups, const NamedTensors& buffers);

/// Compares a hash of every tensor's bits over the ranks. Throws Error(refused), `when` in it ("at step 7"), naming the
/// first tensor that differs and the first rank that has it otherwise than most. One pass over the model and one small
/// collective.
void check_replicas(comm::ProcessGroups& groups, const device::Arena& arena, const NamedTensors& buffers,
                    const std::string& when);

}  // namespace gputrain::parallel
