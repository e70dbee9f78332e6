#include "answers.hpp"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/div.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "gputrain/core/error.hpp"
#include "gputrain/nn/recompute.hpp"
#include "gputrain/ops/chunked_cross_entropy.hpp"

namespace gputrain::tasks {
namespace {

at::Tensor wide(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
}

/// Log-probabilities of targets that are classes.
at::Tensor log_probs_of(const models::Model::LastLayer& last, const at::Tensor& rows, const at::Tensor& targets) {
  const at::Tensor logits = last.head.logits ? last.head.logits(rows) : rows;
  return at::log_softmax(wide(logits.narrow(-1, 0, last.classes)), -1).gather(-1, targets.unsqueeze(-1)).squeeze(-1);
}

/// The same in parts; if there are several, the backward pass computes each again.
at::Tensor log_probs_in_parts(const models::Model& model, const models::Model::LastLayer& last, const at::Tensor& rows,
                              const at::Tensor& targets) {
  std::vector<at::Tensor> parts;
  const auto is_trained = [parameters = last.head.parameters] {
    return std::ranges::any_of(parameters, [](const at::Tensor& one) { return one.requires_grad(); });
  };
  ops::each_part(last.head, rows, targets, model.context().logits_bytes,
                 [&](const at::Tensor& some, const at::Tensor& their_targets) {
                   if (some.size(0) == rows.size(0)) return parts.push_back(log_probs_of(last, some, their_targets));
                   const auto block = [last_layer = models::Model::LastLayer{{}, last.head, last.classes},
                                       their_targets](const std::vector<at::Tensor>& in) {
                     return std::vector{log_probs_of(last_layer, in[0], their_targets)};
                   };
                   parts.push_back(nn::recomputed_block(nn::Recompute::block, {some}, block, is_trained)[0]);
                 });
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

}  // namespace

at::Tensor AnswerLogProbs::means() const { return at::div(sums, at::clamp_min(counts, 1)); }

at::Tensor joined_rows(const std::vector<at::Tensor>& fields, int64_t fill) {
  int64_t width = 0;
  for (const at::Tensor& field : fields) width = std::max(width, field.size(1));
  std::vector<at::Tensor> rows;
  for (const at::Tensor& field : fields) rows.push_back(at::constant_pad_nd(field, {0, width - field.size(1)}, fill));
  return at::cat(rows);
}

at::Tensor token_log_probs(models::Model& model, const Batch& batch, const at::Tensor& tokens, const at::Tensor& counts,
                           const at::Tensor& targets) {
  Batch whole;
  whole.fields.push_back({kTokens, tokens, counts});
  whole.samples = batch.samples;
  whole.samples_on_all_ranks = batch.samples_on_all_ranks;
  const auto last = model.last_layer(whole);
  GPUTRAIN_ASSERT(last.features.dim() == 3 && last.features.size(1) == targets.size(1),
                  "a language model gives features for each token");
  const at::Tensor flat = targets.reshape({-1}), counted = flat.ne(kIgnoreIndex);
  const at::Tensor rows = last.features.reshape({-1, last.features.size(-1)});
  if (!flat.is_cpu()) {  // a GPU would have to tell the host how many count
    const at::Tensor all = log_probs_in_parts(model, last, rows, flat.clamp_min(0));
    return at::where(counted, all, at::zeros({}, all.options())).view(targets.sizes());
  }
  const at::Tensor places = counted.nonzero().squeeze(1);
  const at::Tensor found =
      places.numel() == 0 ? at::zeros({0}, wide(rows.detach().narrow(0, 0, 0)).options())
                          : log_probs_in_parts(model, last, rows.index_select(0, places), flat.index_select(0, places));
  return at::zeros({flat.size(0)}, found.options().requires_grad(false))
      .index_copy(0, places, found)
      .view(targets.sizes());
}

std::vector<AnswerLogProbs> answer_log_probs(models::Model& model, const Batch& batch,
                                             const std::vector<AnswerField>& fields) {
  std::vector<at::Tensor> tokens, targets, counts;
  for (const AnswerField& field : fields) {
    const BatchField* of_tokens = batch.find(field.tokens);
    GPUTRAIN_ASSERT(of_tokens != nullptr, "the batch has no field '" + std::string(field.tokens) + "'");
    tokens.push_back(of_tokens->values);
    counts.push_back(of_tokens->counts);
    targets.push_back(batch.tensor(field.targets));
  }
  const at::Tensor all_targets = joined_rows(targets, kIgnoreIndex);
  const at::Tensor log_probs = token_log_probs(model, batch, joined_rows(tokens, 0), at::cat(counts), all_targets);
  const at::Tensor sums = log_probs.sum(1), number = all_targets.ne(kIgnoreIndex).sum(1).to(sums.scalar_type());
  std::vector<AnswerLogProbs> found;
  const int64_t rows = tokens.front().size(0);
  for (int64_t i = 0; i < std::ssize(fields); ++i)
    found.push_back({sums.narrow(0, i * rows, batch.samples), number.narrow(0, i * rows, batch.samples)});
  return found;
}

}  // namespace gputrain::tasks
