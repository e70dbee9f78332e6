// Batch norm in training whose statistics are those of a group of ranks. (SyncBatchNorm in PyTorch, which has it for
// Python alone and for GPUs alone.)
#pragma once

#include "gputrain/ops/normalization.hpp"

namespace gputrain::ops {

/// As batch_norm(), over options.group. Rows per rank may differ, and some ranks may have none, but not all of them.
at::Tensor synchronised_batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                   const at::Tensor& running_mean, const at::Tensor& running_var,
                                   const BatchNormOptions& options);

}  // namespace gputrain::ops
