// How long a run still takes.
#pragma once

#include <cstdint>

#include "gputrain/train/plan.hpp"
#include "gputrain/train/progress.hpp"

namespace gputrain::train {

/// Estimates the time to the end: steps at their mean pace, and the evaluations and saves that are still to come, once
/// their time is known, at the mean of those before. Goes by the times of this attempt.
class TimeLeft {
 public:
  explicit TimeLeft(const Plan& plan) : plan_(plan) {}

  /// Call before training begins, and again when it goes on after a rollback.
  void begin(const Progress& progress);
  /// Call after each step, before it is followed by an evaluation or a save.
  void note_step(const Progress& progress);

  /// Returns the seconds that are left; 0: unknown, or none.
  double seconds(const Progress& progress) const;
  /// Return means over the latest steps; 0 before the first.
  double seconds_per_step() const noexcept { return seconds_per_step_; }
  double samples_per_second() const noexcept { return of_step(samples_per_step_); }
  double tokens_per_second() const noexcept { return of_step(tokens_per_step_); }

 private:
  /// What interrupts training again and again, and for how long.
  struct Interruptions {
    double total = 0;  // Progress::eval_seconds or save_seconds
    double seconds = 0;
    int64_t count = 0;

    void note(double new_total);
    double mean() const noexcept { return count > 0 ? seconds / static_cast<double>(count) : 0; }
  };
  double of_step(double count) const noexcept { return seconds_per_step_ > 0 ? count / seconds_per_step_ : 0; }
  double saves_left(const Progress& progress, int64_t end, double training) const;

  const Plan& plan_;
  int64_t steps_ = 0;  // noted
  double seconds_per_step_ = 0, samples_per_step_ = 0, tokens_per_step_ = 0;
  double train_seconds_ = 0;  // Progress::train_seconds, .usage.samples and .tokens after the step before
  int64_t samples_ = 0, tokens_ = 0;
  double trained_ = 0;  // seconds of the noted steps
  Interruptions evaluations_, saves_;
};

}  // namespace gputrain::train
