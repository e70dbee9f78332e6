// Cross entropy over classes, for tasks whose target is a class number.
#pragma once

#include <functional>

#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {

/// Sums the cross entropy of the model's logits with field "target"; see Task::loss and ops::cross_entropy.
ops::Loss cross_entropy_loss(models::Model& model, const Batch& batch, double label_smoothing,
                             const at::Tensor& weight);

/// Sums that of mixed images (data/mixing.hpp): for each, over its two targets, weighted by their parts.
ops::Loss mixed_cross_entropy_loss(models::Model& model, const Batch& batch, double label_smoothing,
                                   const at::Tensor& weight);

/// Returns the same sum as cross_entropy_loss(), without smoothing and without an autograd graph; a double on the
/// model's device. Calls `visit` with the logits [rows, classes] and targets [rows] of each part, before the loss
/// overwrites the logits.
at::Tensor evaluate_cross_entropy(models::Model& model, const Batch& batch,
                                  const std::function<void(const at::Tensor&, const at::Tensor&)>& visit);

}  // namespace gputrain::tasks
