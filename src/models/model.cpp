#include "gputrain/models/model.hpp"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"

namespace gputrain::models {

ModelCatalog& catalog() {
  static ModelCatalog models("model");
  return models;
}

Model::~Model() = default;

namespace {

/// Copies logits that the model or the graph may read again, because the loss overwrites them with the gradient:
/// log_softmax, for example, saves its result for the backward pass.
at::Tensor free_to_write(at::Tensor logits) {
  const bool is_ours = logits.use_count() == 1 && logits.storage().use_count() == 1;
  return is_ours || !at::GradMode::is_enabled() ? logits : logits.clone();
}

}  // namespace

Model::LastLayer Model::last_layer(const Batch& batch) {
  at::Tensor logits = forward(batch.input());
  GPUTRAIN_ASSERT(logits.defined() && logits.dim() > 0, "the model's forward() gives no logits [batch, ..., classes]");
  logits = free_to_write(std::move(logits));
  const int64_t classes = logits.size(-1);
  return {.features = std::move(logits), .head = {}, .classes = classes};
}

at::Tensor Model::run_units(const Batch&, int64_t) {
  GPUTRAIN_ASSERT(false, "the model does not run in parts");
  return {};
}

at::Tensor Model::empty_hidden(const Batch&) const {
  GPUTRAIN_ASSERT(false, "the model does not run in parts");
  return {};
}

at::Tensor Model::next_logits(const NextTokens&, Memory&) {
  throw Error(ExitCode::usage,
              {.what = "this model does not write text: it keeps nothing of the tokens that it has read",
               .where = "model.type",
               .hint = "gpt does"});
}

}  // namespace gputrain::models
