#include "gputrain/train/hooks.hpp"

namespace gputrain::train {

Stop SaveHook::after_step(Progress& progress, const StepResult&, bool asked) {
  has_trained_ = true;
  parts_.look();
  const auto best = progress.best.find(parts_.best_metric);
  const bool is_best = best != progress.best.end() && best->second.step == progress.step;
  if (!asked && !is_best && !parts_.cadence.at_step(progress.step)) return Stop::none;
  const bool is_requested = parts_.requests.pending();
  if (is_requested) parts_.requests.served();
  parts_.save(progress, is_requested ? SaveMode::announced : SaveMode::background);
  note_saved(progress);
  since_save_.lap();
  return Stop::none;
}

Stop SaveHook::after_training(Progress& progress, bool stopped) {
  const bool is_saved = saved_step_ == progress.step && saved_evaluation_ == progress.evaluated_step;
  if (is_saved && !has_trained_) return Stop::none;  // as this attempt found it
  if (is_saved && stopped && parts_.settle()) return Stop::none;
  parts_.save(progress, SaveMode::durable);
  note_saved(progress);
  return Stop::none;
}

bool SaveHook::is_due() const {
  return parts_.requests.pending() || (parts_.cadence.seconds > 0 && since_save_.seconds() >= parts_.cadence.seconds);
}

void SaveHook::note_saved(const Progress& progress) {
  saved_step_ = progress.step;
  saved_evaluation_ = progress.evaluated_step;
}

}  // namespace gputrain::train
