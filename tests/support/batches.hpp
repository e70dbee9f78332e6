// Batches made by hand, and what the tasks of the catalog make of them.
#pragma once

#include <memory>
#include <utility>

#include <ATen/core/Tensor.h>

#include "gputrain/models/model.hpp"
#include "gputrain/tasks/cross_entropy.hpp"

namespace gputrain::testing_support {

/// Inputs (int64: tokens) and the targets of field "target".
inline Batch batch_of(at::Tensor inputs, at::Tensor targets) {
  const bool is_text = inputs.scalar_type() == at::kLong;
  Batch batch{.fields = {{is_text ? kTokens : kImage, std::move(inputs)}, {kTarget, std::move(targets)}}};
  batch.samples = batch.samples_on_all_ranks = batch.input().size(0);
  batch.weight = batch.tensor(kTarget).numel();
  return batch;
}

/// Cross entropy with the batch's targets.
inline ops::Loss loss_of(models::Model& model, const Batch& batch, double label_smoothing = 0) {
  return tasks::cross_entropy_loss(model, batch, label_smoothing, {});
}

/// Sums "loss", "top1" and "top5" of the task classification, which takes targets of any sizes.
inline tasks::Totals evaluate(models::Model& model, const Batch& batch) {
  const auto layout = data::SampleLayout::values({1}, at::kFloat, 1);
  const auto task = tasks::catalog().make({"classification", tasks::catalog().find("classification")->schema->create()},
                                          {.layout = layout, .model = {}});
  tasks::Tally tally(task->parts(), model.context().device);
  tally.add_weight(batch.weight);
  task->evaluate(model, batch, tally);
  comm::ProcessGroups alone;
  return tally.merge(alone);
}

}  // namespace gputrain::testing_support
