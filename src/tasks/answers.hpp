// Log-probabilities that a language model gives answers.
#pragma once

#include <vector>

#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {

/// Fields of a batch: [batch, time] of tokens, and of targets, where kIgnoreIndex marks those that do not count.
struct AnswerField {
  const char* tokens;
  const char* targets;
};

/// What a model gives an answer.
struct AnswerLogProbs {
  at::Tensor sums;    // [samples], at least fp32: over the tokens that count
  at::Tensor counts;  // [samples], the same type: how many there are; 0: the sample is unreadable

  at::Tensor means() const;  // over the tokens
};

/// Log-probabilities [rows, time] of the targets of tokens [rows, time], in at least fp32; 0 where a target is
/// kIgnoreIndex. Logits exist for a part of the rows at a time, and the backward pass computes them again. `counts`:
/// tokens of each row.
at::Tensor token_log_probs(models::Model& model, const Batch& batch, const at::Tensor& tokens, const at::Tensor& counts,
                           const at::Tensor& targets);

/// Rows of several fields under each other, padded at their end with `fill`.
at::Tensor joined_rows(const std::vector<at::Tensor>& fields, int64_t fill);

/// Those of each field, in one pass of the model.
std::vector<AnswerLogProbs> answer_log_probs(models::Model& model, const Batch& batch,
                                             const std::vector<AnswerField>& fields);

}  // namespace gputrain::tasks
