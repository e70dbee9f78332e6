// Log-probabilities that a language model gives to answers.
#pragma once

#include <vector>

#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {

/// Fields of a batch: [batch, time] of tokens, and of targets, where kIgnoreIndex marks those that do not count.
struct AnswerField {
  const char* tokens;
  const char* targets;
};
inline constexpr AnswerField kChosenAnswer{kTokens, kTarget}, kRejectedAnswer{kRejectedTokens, kRejectedTarget};

/// Texts of a batch's samples for one pass of the model. Either each text is a row of its own, those of the first field
/// above those of the next, or a row has all texts of several samples.
class AnswerRows {
 public:
  /// Takes all texts of a packed batch (data/answer_fields.hpp); each sample has as many as there are `fields`.
  AnswerRows(const Batch& batch, const std::vector<AnswerField>& fields);

  const at::Tensor& targets() const noexcept { return targets_; }  // [rows, time]: those of the answers
  /// Returns the same, but for the texts of the first field the next token at each place, also within the prompt.
  at::Tensor targets_of_whole_first() const;

  /// Returns log-probabilities of `targets` [rows, time], in at least fp32; 0 where a target is kIgnoreIndex. Logits
  /// exist for a part of the rows at a time, and the backward pass computes them again.
  at::Tensor log_probs(models::Model& model, const at::Tensor& targets) const;

  /// Sums values [rows, time] over each text: [samples] of each field.
  std::vector<at::Tensor> sums(const at::Tensor& values) const;

 private:
  at::Tensor field_of_token() const;

  int64_t fields_, samples_, samples_on_all_ranks_;
  at::Tensor tokens_, targets_;
  int64_t most_counted_ = 0;      // see BatchField
  at::Tensor counts_;             // number of tokens of each text, if it is a row
  at::Tensor positions_, texts_;  // kPositions and kTextOfToken, if texts share rows
  int64_t texts_of_row_ = 1;
  int64_t texts_in_row_ = 0, longest_text_ = 0;  // see Batch
};

/// Log-probability of an answer to each sample.
struct AnswerLogProbs {
  at::Tensor sums;    // [samples], at least fp32: sums over the tokens that count
  at::Tensor counts;  // [samples], the same type: number of these; 0: there is no sample, or it is unreadable

  at::Tensor means() const;  // divides by the tokens
};

/// Returns those of each field, in one pass of the model.
std::vector<AnswerLogProbs> answer_log_probs(models::Model& model, const Batch& batch,
                                             const std::vector<AnswerField>& fields);

/// Returns the numbers of Task::reference() before training, [samples] for each of `numbers`, in the type of `like`.
std::vector<at::Tensor> numbers_before(const Batch& batch, int64_t numbers, const at::Tensor& like);

/// Puts rows of several fields under each other, padded at their end with `fill`.
at::Tensor joined_rows(const std::vector<at::Tensor>& fields, int64_t fill);

/// Returns whether the samples share rows.
bool is_packed(const Batch& batch);

}  // namespace gputrain::tasks
