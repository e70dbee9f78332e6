// Functions that tasks without cross entropy share.
#pragma once

#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {

/// Returns the same values in at least fp32.
at::Tensor wide(const at::Tensor& values);

/// Returns logits [batch, classes] in at least fp32.
at::Tensor wide_logits(models::Model& model, const Batch& batch);

/// Returns the sum of `losses`, one of each target that counts, as ops::Loss.
ops::Loss loss_of_sum(const at::Tensor& losses, const at::Tensor& weight);

}  // namespace gputrain::tasks
