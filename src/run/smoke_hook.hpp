// `run --smoke`: does once, after the first steps, what otherwise comes late in a run.
#pragma once

#include <functional>

#include "gputrain/monitor/console.hpp"
#include "gputrain/setup/training_loop.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/hook.hpp"

namespace gputrain::app {

/// Evaluates some samples of the validation and the test data and saves, after the first steps of an attempt. A failure
/// there would else come after hours. Results stay the same: those of the evaluations are forgotten.
class SmokeHook final : public train::Hook {
 public:
  struct Parts {
    const JobSpec& spec;
    TrainingSetup& setup;
    TrainingLoop& loop;
    monitor::Console& console;
    train::StopReason own_stop;
    /// Throws if the checkpoint is not on disk. Every rank must call.
    std::function<void(const train::Progress&)> save;
  };
  /// A shorter run comes to its end anyway.
  static constexpr int64_t kSteps = 3;

  explicit SmokeHook(Parts parts) : parts_(std::move(parts)) {}
  train::Stop after_step(train::Progress& progress, const train::StepResult& result, bool requested) override;
  bool will_act(const train::Progress&, bool) const override { return steps_ + 1 == kSteps; }

 private:
  train::Stop evaluate(const std::shared_ptr<const data::Dataset>& dataset, const std::string& role);

  Parts parts_;
  int64_t steps_ = 0;  // steps of this attempt
};

}  // namespace gputrain::app
