#include "gputrain/models/model.hpp"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <nlohmann/json.hpp>

namespace gputrain::models {

ModelCatalog& catalog() {
  static ModelCatalog models("model");
  return models;
}

Model::~Model() = default;

nlohmann::json Model::ecosystem_config() const { return nullptr; }

std::string Model::parameter_of(const std::string& file_name) const { return file_name; }

Model::LastLayer Model::last_layer(const at::Tensor& inputs) {
  const at::Tensor logits = forward(inputs);
  return {.features = logits, .head = {}, .classes = logits.size(-1)};
}

ops::Loss Model::loss(const Batch& batch, double label_smoothing, const at::Tensor& weight) {
  const LastLayer last = last_layer(batch.inputs);
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
