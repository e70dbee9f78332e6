// Parts of parameters that ranks share (tensor parallelism: Shoeybi et al., "Megatron-LM", arXiv:1909.08053).
#pragma once

#include <ATen/core/Tensor.h>

#include "gputrain/comm/group.hpp"
#include "gputrain/device/split.hpp"

namespace gputrain::nn {

/// Returns this rank's part of a whole tensor: a copy.
at::Tensor part_of(const device::Split& split, const at::Tensor& whole);

/// Returns the whole tensor, from the parts of all ranks. Every rank of the group must call.
at::Tensor whole_of(const device::Split& split, const at::Tensor& part, comm::Group& group);

}  // namespace gputrain::nn
