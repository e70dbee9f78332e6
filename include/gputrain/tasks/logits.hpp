// What tasks without cross entropy share.
#pragma once

#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {

/// The same values in at least fp32.
at::Tensor wide(const at::Tensor& values);

/// Logits [batch, classes] in at least fp32.
at::Tensor wide_logits(models::Model& model, const Batch& batch);

/// The sum of `losses`, one of each target that counts, as ops::Loss.
ops::Loss loss_of_sum(const at::Tensor& losses, const at::Tensor& weight);

}  // namespace gputrain::tasks
