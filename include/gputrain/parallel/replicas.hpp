// Checks that all ranks hold the same model, and makes it so. Every rank must call each of these functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/device/arena.hpp"

namespace gputrain::parallel {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Compares names, shapes and types over the ranks, because a collective fails if they differ. Throws Error(usage) that
/// names the first rank that differs from rank 0.
void check_same_layout(comm::ProcessGroups& groups, const device::Arena& arena, const NamedTensors& buffers);

/// Copies rank 0's tensors to every rank. Buffers such as batch norm's averages differ between ranks in training: call
/// this before an evaluation or a save.
void broadcast(comm::ProcessGroups& groups, const device::Arena& arena, const NamedTensors& buffers);
void broadcast(comm::ProcessGroups& groups, const NamedTensors& buffers);

/// Compares a hash of every tensor's bits over the ranks. Throws Error(refused) with `when` ("at step 7"), the first
/// tensor that differs, and the first rank that disagrees with most. One pass over the model and one small collective.
void check_replicas(comm::ProcessGroups& groups, const device::Arena& arena, const NamedTensors& buffers,
                    const std::string& when);

}  // namespace gputrain::parallel
