#include "answers.hpp"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/div.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "../counted_rows.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/answer_fields.hpp"
#include "gputrain/nn/recompute.hpp"
#include "gputrain/ops/chunked_cross_entropy.hpp"

namespace gputrain::tasks {
namespace {

at::Tensor log_probs_of(const models::Model::LastLayer& last, const at::Tensor& rows, const at::Tensor& targets) {
  const at::Tensor logits = last.head.logits ? last.head.logits(rows) : rows;
  return ops::log_probs(logits, targets, last.classes);
}

/// Computes the same in parts; if there are several, the backward pass computes each again.
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

bool is_packed(const Batch& batch) { return batch.find(data::kTextOfToken) != nullptr; }

AnswerRows::AnswerRows(const Batch& batch, const std::vector<AnswerField>& fields)
    : fields_(std::ssize(fields)), samples_(batch.samples), samples_on_all_ranks_(batch.samples_on_all_ranks) {
  if (is_packed(batch)) {
    tokens_ = batch.tensor(kTokens);
    targets_ = batch.tensor(kTarget);
    most_counted_ = batch.find(kTarget)->most_counted;
    positions_ = batch.tensor(kPositions);
    texts_ = batch.tensor(data::kTextOfToken);
    texts_of_row_ = fields_ * batch.tensor(data::kIsSample).size(1);
    texts_in_row_ = batch.texts_in_row;
    longest_text_ = batch.longest_text;
    return;
  }
  std::vector<at::Tensor> tokens, targets, counts;
  bool is_known = true;
  for (const AnswerField& field : fields) {
    const BatchField* of_tokens = batch.find(field.tokens);
    GPUTRAIN_ASSERT(of_tokens != nullptr, "the batch has no field '" + std::string(field.tokens) + "'");
    tokens.push_back(of_tokens->values);
    counts.push_back(of_tokens->counts);
    targets.push_back(batch.tensor(field.targets));
    const int64_t most = batch.find(field.targets)->most_counted;
    is_known = is_known && most > 0;
    most_counted_ += most;
  }
  if (!is_known) most_counted_ = 0;
  tokens_ = joined_rows(tokens, 0);
  targets_ = joined_rows(targets, kIgnoreIndex);
  counts_ = at::cat(counts);
}

/// Returns the field of each token; broadcasts to [rows, time].
at::Tensor AnswerRows::field_of_token() const {
  if (texts_.defined()) return at::remainder(texts_, fields_);
  const int64_t rows = tokens_.size(0);
  return at::floor_divide(at::arange(rows, tokens_.options()), rows / fields_).unsqueeze(1);
}

at::Tensor AnswerRows::targets_of_whole_first() const {
  const int64_t time = tokens_.size(1);
  const auto shifted = [time](const at::Tensor& values, int64_t fill) {
    return at::constant_pad_nd(values.narrow(1, 1, time - 1), {0, 1}, fill);
  };
  const at::Tensor next = shifted(tokens_, 0);
  const at::Tensor has_next =
      texts_.defined() ? at::logical_and(shifted(texts_, -1).eq(texts_), texts_.ge(0))
                       : at::lt(at::arange(time, tokens_.options()).unsqueeze(0), (counts_ - 1).unsqueeze(1));
  const at::Tensor whole = next.masked_fill(has_next.logical_not(), kIgnoreIndex);
  return at::where(field_of_token().eq(0), whole, targets_);
}

at::Tensor AnswerRows::log_probs(models::Model& model, const at::Tensor& targets) const {
  Batch rows;
  rows.fields.push_back({kTokens, tokens_, counts_});
  if (positions_.defined()) rows.fields.push_back({kPositions, positions_});
  rows.samples = samples_;
  rows.samples_on_all_ranks = samples_on_all_ranks_;
  rows.texts_in_row = texts_in_row_;
  rows.longest_text = longest_text_;
  const auto last = model.last_layer(rows);
  GPUTRAIN_ASSERT(last.features.dim() == 3 && last.features.size(1) == targets.size(1),
                  "a language model gives features for each token");
  const at::Tensor flat = targets.reshape({-1});
  const at::Tensor features = last.features.reshape({-1, last.features.size(-1)});
  const int64_t most = targets.is_same(targets_) && costs_little(last.head, features) ? most_counted_ : 0;
  if (most == 0 && !flat.is_cpu()) return log_probs_in_parts(model, last, features, flat).view(targets.sizes());
  at::Tensor places = counted_places(flat, most);
  if (places.numel() == 0 && flat.numel() > 0)
    places = at::zeros({1}, places.options());  // makes all ranks read the same weights
  const at::Tensor found =
      log_probs_in_parts(model, last, features.index_select(0, places), flat.index_select(0, places));
  return at::zeros({flat.size(0)}, found.options()).index_copy(0, places, found).view(targets.sizes());
}

std::vector<at::Tensor> AnswerRows::sums(const at::Tensor& values) const {
  at::Tensor of_texts;  // [samples, fields]
  if (texts_.defined()) {
    const at::Tensor numbers = at::arange(texts_of_row_, texts_.options());
    const at::Tensor is_of = texts_.unsqueeze(2).eq(numbers);  // [rows, time, texts]
    of_texts = (values.unsqueeze(2) * is_of).sum(1).narrow(0, 0, samples_).reshape({-1, fields_});
  } else {
    of_texts = values.sum(1).view({fields_, -1}).narrow(1, 0, samples_).t();
  }
  std::vector<at::Tensor> found;
  for (int64_t field = 0; field < fields_; ++field) found.push_back(of_texts.select(1, field));
  return found;
}

std::vector<AnswerLogProbs> answer_log_probs(models::Model& model, const Batch& batch,
                                             const std::vector<AnswerField>& fields) {
  const AnswerRows rows(batch, fields);
  const auto sums = rows.sums(rows.log_probs(model, rows.targets()));
  const auto counts = rows.sums(rows.targets().ne(kIgnoreIndex).to(sums.front().scalar_type()));
  std::vector<AnswerLogProbs> found;
  for (size_t i = 0; i < sums.size(); ++i) found.push_back({sums[i], counts[i]});
  return found;
}

std::vector<at::Tensor> numbers_before(const Batch& batch, int64_t numbers, const at::Tensor& like) {
  const at::Tensor before =
      batch.tensor(kReference).narrow(0, 0, batch.samples).to(like.scalar_type()).reshape({-1, numbers});
  std::vector<at::Tensor> found;
  for (int64_t i = 0; i < numbers; ++i) found.push_back(before.select(1, i));
  return found;
}

}  // namespace gputrain::tasks
