// Batch norm in training with the statistics of a group of ranks. (PyTorch's SyncBatchNorm exists only in Python and
// only for GPUs.)
#pragma once

#include "gputrain/ops/normalization.hpp"

namespace gputrain::ops {

/// Normalizes like batch_norm(), over options.group. Ranks may have different numbers of rows, some none, not all.
at::Tensor synchronised_batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                   const at::Tensor& running_mean, const at::Tensor& running_var,
                                   const BatchNormOptions& options);

}  // namespace gputrain::ops
