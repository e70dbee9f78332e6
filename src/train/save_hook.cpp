#include "gputrain/train/hooks.hpp"

namespace gputrain::train {

void SaveHook::after_step(Progress& progress, const StepResult&, bool asked) {
  if (!asked && !cadence_.at_step(progress.step)) return;
  save_(progress);
  saved_step_ = progress.step;
  since_save_.lap();
}

void SaveHook::after_training(Progress& progress, bool) {
  if (saved_step_ != progress.step) save_(progress);
  saved_step_ = progress.step;
}

bool SaveHook::is_due() const { return cadence_.seconds > 0 && since_save_.seconds() >= cadence_.seconds; }

}  // namespace gputrain::train
