// Base of tasks that learn which of two answers to a prompt is better.
#pragma once

#include <vector>

#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {

/// Losses and rewards, [samples] each. A reward says how good the model finds an answer; its unit is the task's.
struct JudgedPairs {
  at::Tensor losses;  // 0 for samples that are unreadable
  at::Tensor chosen_rewards, rejected_rewards;
};

class PairedAnswers : public Task {
 public:
  static Target target() { return Target::preference; }
  static Target head() { return Target::next_token; }
  static bool fits(const TaskRequest& request);
  static std::vector<Metric> measures();

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const final;
  Tally::Parts parts() const final;
  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const final;

 protected:
  /// Judges pairs; `smoothing` is the share of them whose answers are the wrong way round.
  virtual JudgedPairs judge(models::Model& model, const Batch& batch, double smoothing) const = 0;

  explicit PairedAnswers(double smoothing) : smoothing_(smoothing) {}

 private:
  double smoothing_;
};

/// Returns -log sigmoid(margins), with the share `smoothing` of -log sigmoid(-margins).
at::Tensor logistic_losses(const at::Tensor& margins, double smoothing);

}  // namespace gputrain::tasks
