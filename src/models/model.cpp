#include "gputrain/models/model.hpp"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/nn/recompute.hpp"

namespace gputrain::models {

ModelCatalog& catalog() {
  static ModelCatalog models("model");
  return models;
}

Model::~Model() = default;

nlohmann::json Model::ecosystem_config() const { return nullptr; }

std::string Model::parameter_of(const std::string& file_name) const { return file_name; }

namespace {

/// The loss writes the gradient over its logits. What the model or the graph reads again is left to them: log_softmax,
/// for one, keeps its result for the backward pass.
at::Tensor free_to_write(at::Tensor logits) {
  const bool is_ours = logits.use_count() == 1 && logits.storage().use_count() == 1;
  return is_ours || !at::GradMode::is_enabled() ? logits : logits.clone();
}

/// Else the mistake of a model would show as one of an operator that comes later.
void check_logits(const Model& model, const at::Tensor& features, const ops::Head& head, const at::Tensor& targets) {
  const at::IntArrayRef rows = features.sizes().slice(0, static_cast<size_t>(std::max<int64_t>(features.dim() - 1, 0)));
  GPUTRAIN_ASSERT(features.dim() > 0 && c10::multiply_integers(rows) == targets.numel(),
                  "the model gives logits of " + c10::str(features.sizes()) + " for targets of " +
                      c10::str(targets.sizes()) + "; the sizes of the targets and then the classes are wanted");
  const bool learns = features.requires_grad() || std::ranges::any_of(head.parameters, [](const at::Tensor& parameter) {
                        return parameter.requires_grad();
                      });
  GPUTRAIN_ASSERT(!at::GradMode::is_enabled() || !model.is_training() || learns,
                  "the model gives logits that no parameter can learn from: of integers, or detached");
}

}  // namespace

Model::LastLayer Model::last_layer(const at::Tensor& inputs) {
  at::Tensor logits = forward(inputs);
  GPUTRAIN_ASSERT(logits.defined() && logits.dim() > 0, "the model's forward() gives no logits [batch, ..., classes]");
  logits = free_to_write(std::move(logits));
  const int64_t classes = logits.size(-1);
  return {.features = std::move(logits), .head = {}, .classes = classes};
}

ops::Loss Model::loss(const Batch& batch, double label_smoothing, const at::Tensor& weight) {
  const nn::ForwardPass pass;
  const LastLayer last = last_layer(batch.inputs);
  check_logits(*this, last.features, last.head, batch.targets);
  return ops::head_loss(last.head, last.features, batch.targets,
                        {.classes = last.classes, .label_smoothing = label_smoothing, .weight = weight},
                        context().logits_bytes);
}

Statistics Model::evaluate(const Batch& batch) {
  const at::NoGradGuard no_grad;
  const LastLayer last = last_layer(batch.inputs);
  const int64_t count = std::min<int64_t>(5, last.classes);
  const auto zero = [&](at::ScalarType type) { return at::zeros({}, last.features.options().dtype(type)); };
  Statistics sums{.loss_sum = zero(at::kDouble), .correct1 = zero(at::kLong), .correct5 = zero(at::kLong)};
  ops::each_part(last.head, last.features, batch.targets, context().logits_bytes,
                 [&](const at::Tensor& features, const at::Tensor& targets) {
                   const at::Tensor logits = last.head.logits ? last.head.logits(features) : features;
                   const at::Tensor best = std::get<1>(logits.narrow(-1, 0, last.classes).topk(count, -1));
                   // No class has the number of a target that is left out, so it is never a hit.
                   const at::Tensor hits = at::eq(best, targets.unsqueeze(-1));
                   sums.loss_sum.add_(ops::cross_entropy(logits, targets, {.classes = last.classes}).sum);
                   sums.correct1.add_(hits.select(-1, 0).sum());
                   sums.correct5.add_(hits.sum());
                 });
  return sums;
}

}  // namespace gputrain::models
