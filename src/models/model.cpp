#include "gputrain/models/model.hpp"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/topk.h>
#include <nlohmann/json.hpp>

namespace gputrain::models {

ModelCatalog& catalog() {
  static ModelCatalog models("model");
  return models;
}

Model::~Model() = default;

nlohmann::json Model::ecosystem_config() const { return nullptr; }

std::string Model::parameter_of(const std::string& file_name) const { return file_name; }

Model::Logits Model::loss_logits(const at::Tensor& inputs) {
  const at::Tensor logits = forward(inputs);
  return {logits, logits.size(-1)};
}

ops::Loss Model::loss(const Batch& batch, double label_smoothing, const at::Tensor& weight) {
  const Logits logits = loss_logits(batch.inputs);
  return ops::cross_entropy(logits.values, batch.targets,
                            {.classes = logits.classes, .label_smoothing = label_smoothing, .weight = weight});
}

Statistics Model::evaluate(const Batch& batch) {
  const at::NoGradGuard no_grad;
  const Logits logits = loss_logits(batch.inputs);
  const int64_t count = std::min<int64_t>(5, logits.classes);
  const at::Tensor best = std::get<1>(logits.values.narrow(-1, 0, logits.classes).topk(count, -1));
  // No class has the number of a target that is left out, so it is never a hit.
  const at::Tensor hits = at::eq(best, batch.targets.unsqueeze(-1));
  return {.loss_sum = ops::cross_entropy(logits.values, batch.targets, {.classes = logits.classes}).sum,
          .correct1 = hits.select(-1, 0).sum(),
          .correct5 = hits.sum()};
}

}  // namespace gputrain::models
