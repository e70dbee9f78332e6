#include "gputrain/tasks/logits.hpp"

#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>

#include "gputrain/nn/recompute.hpp"

namespace gputrain::tasks {

at::Tensor wide(const at::Tensor& values) {
  return values.scalar_type() == at::kDouble ? values : values.to(at::kFloat);
}

at::Tensor wide_logits(models::Model& model, const Batch& batch) {
  const nn::ForwardPass pass;
  const auto last = model.last_layer(batch);
  const at::Tensor logits = last.head.logits ? last.head.logits(last.features) : last.features;
  return wide(logits.narrow(-1, 0, last.classes));
}

ops::Loss loss_of_sum(const at::Tensor& losses, const at::Tensor& weight) {
  const at::Tensor sum = at::sum(losses, at::kDouble);
  return {.sum = sum.detach(), .weighted = weight.defined() ? at::mul(sum, weight) : sum};
}

}  // namespace gputrain::tasks
