#include "gputrain/tasks/cross_entropy.hpp"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

#include "counted_rows.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/mixing.hpp"
#include "gputrain/nn/recompute.hpp"
#include "gputrain/ops/chunked_cross_entropy.hpp"

namespace gputrain::tasks {
namespace {

/// Checks logits here: otherwise a mistake in a model would appear as an error of a later operator.
void check_logits(const models::Model& model, const at::Tensor& features, const ops::Head& head,
                  const at::Tensor& targets) {
  const at::IntArrayRef rows = features.sizes().slice(0, static_cast<size_t>(std::max<int64_t>(features.dim() - 1, 0)));
  GPUTRAIN_ASSERT(features.dim() > 0 && c10::multiply_integers(rows) == targets.numel(),
                  "the model gives logits of " + c10::str(features.sizes()) + " for targets of " +
                      c10::str(targets.sizes()) + "; expected are the sizes of the targets, then the classes");
  const bool learns = features.requires_grad() || std::ranges::any_of(head.parameters, [](const at::Tensor& parameter) {
                        return parameter.requires_grad();
                      });
  GPUTRAIN_ASSERT(!at::GradMode::is_enabled() || !model.is_training() || learns,
                  "no parameter can learn from the model's logits: they are integers, or detached");
}

/// Features and targets of a batch, without the rows in which no target counts, if that spares the last layer much. A
/// rank without any such row keeps all, so that it reads the same weights as the others.
struct Rows {
  at::Tensor features, targets;
};

Rows counted_rows(const models::Model::LastLayer& last, const Batch& batch) {
  const at::Tensor& targets = batch.tensor(kTarget);
  const int64_t most = batch.find(kTarget)->most_counted;
  const bool is_known = most > 0 && costs_little(last.head, last.features);
  const bool are_few = targets.is_cpu() && batch.weight > 0 && 4 * batch.weight < 3 * targets.numel();
  if (!last.head.logits || (!is_known && !are_few)) return {last.features, targets};
  const at::Tensor flat = targets.reshape({-1}), rows = counted_places(flat, is_known ? most : 0);
  return {last.features.reshape({-1, last.features.size(-1)}).index_select(0, rows), flat.index_select(0, rows)};
}

/// Turns a loss that goes with the mean over a batch into one that goes with the sum, times `weight`.
at::Tensor times_targets(const at::Tensor& loss, const at::Tensor& targets, const at::Tensor& weight) {
  const at::Tensor count = targets.ne(kIgnoreIndex).sum().to(at::kDouble);
  return at::mul(loss.to(at::kDouble), weight.defined() ? at::mul(count, weight) : count);
}

}  // namespace

ops::Loss cross_entropy_loss(models::Model& model, const Batch& batch, double label_smoothing,
                             const at::Tensor& weight) {
  const nn::ForwardPass pass;
  const auto last = model.last_layer(batch);
  const at::Tensor& targets = batch.tensor(kTarget);
  check_logits(model, last.features, last.head, targets);
  const Rows rows = counted_rows(last, batch);
  ops::Loss loss = ops::chunked_cross_entropy(
      last.head, rows.features, rows.targets,
      {.classes = last.classes, .label_smoothing = label_smoothing, .weight = weight}, model.context().logits_bytes);
  if (last.extra_loss.defined())
    loss.weighted = at::add(loss.weighted, times_targets(last.extra_loss, targets, weight));
  return loss;
}

ops::Loss mixed_cross_entropy_loss(models::Model& model, const Batch& batch, double label_smoothing,
                                   const at::Tensor& weight) {
  const nn::ForwardPass pass;
  const auto last = model.last_layer(batch);
  const at::Tensor& targets = batch.tensor(kTarget);
  check_logits(model, last.features, last.head, targets);
  const at::Tensor logits = last.head.logits ? last.head.logits(last.features) : last.features;
  const at::Tensor part = batch.tensor(data::kMixedPart).select(0, 0), rest = at::rsub(part, 1);
  const auto loss_of_part = [&](const at::Tensor& rows, const at::Tensor& wanted, const at::Tensor& share) {
    const at::Tensor factor = weight.defined() ? at::mul(weight, share) : share;
    const ops::Loss loss = ops::loss_of_logits(
        last.head, rows, wanted, {.classes = last.classes, .label_smoothing = label_smoothing, .weight = factor});
    return ops::Loss{.sum = at::mul(loss.sum, share), .weighted = loss.weighted};
  };
  // The loss overwrites its logits.
  const ops::Loss first = loss_of_part(logits.clone(), targets, part);
  const ops::Loss second = loss_of_part(logits, batch.tensor(data::kMixedTarget), rest);
  return {.sum = at::add(first.sum, second.sum), .weighted = at::add(first.weighted, second.weighted)};
}

at::Tensor evaluate_cross_entropy(models::Model& model, const Batch& batch,
                                  const std::function<void(const at::Tensor&, const at::Tensor&)>& visit) {
  const at::NoGradGuard no_grad;
  const auto last = model.last_layer(batch);
  at::Tensor sum = at::zeros({}, last.features.options().dtype(at::kDouble));
  const Rows rows = counted_rows(last, batch);
  ops::each_part(last.head, rows.features, rows.targets, model.context().logits_bytes,
                 [&](const at::Tensor& features, const at::Tensor& targets) {
                   const at::Tensor logits = last.head.logits ? last.head.logits(features) : features;
                   if (visit) visit(logits.narrow(-1, 0, last.classes), targets);
                   sum.add_(ops::loss_of_logits(last.head, logits, targets, {.classes = last.classes}).sum);
                 });
  return sum;
}

}  // namespace gputrain::tasks
