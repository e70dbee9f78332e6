#include "gputrain/train/hooks.hpp"

namespace gputrain::train {

/// If an evaluation was repeated just now, the checkpoint that training resumes from does not contain it.
void SaveHook::before_training(Progress& progress) {
  train_seconds_ = progress.train_seconds;
  saved_step_ = progress.step;
  if (progress.step == 0) saved_evaluation_ = progress.evaluated_step;  // weights are still untrained
  if (saved_evaluation_ == progress.evaluated_step || !is_best(progress)) return;
  save(progress, SaveMode::background);
  note_saved(progress);
}

Stop SaveHook::after_step(Progress& progress, const StepResult&, bool requested) {
  has_trained_ = true;
  if (parts_.pace != nullptr) parts_.pace->note_step(progress.train_seconds - train_seconds_);
  train_seconds_ = progress.train_seconds;
  parts_.look();
  if (is_best(progress) || will_act(progress, requested)) save_now(progress);
  return Stop::none;
}

/// Saves on request, and what no save has yet when the interval is over.
Stop SaveHook::while_held(Progress& progress, bool requested) {
  parts_.look();
  if (requested) save_now(progress);
  return Stop::none;
}

void SaveHook::save_now(Progress& progress) {
  const bool is_requested = parts_.requests.pending();
  if (is_requested) parts_.requests.served();
  save(progress, is_requested ? SaveMode::announced : SaveMode::background);
  note_saved(progress);
  since_save_.lap();
}

Stop SaveHook::after_training(Progress& progress, bool) {
  const bool is_saved = saved_step_ == progress.step && saved_evaluation_ == progress.evaluated_step;
  if (is_saved && !has_trained_) return Stop::none;  // unchanged since this attempt started
  if (is_saved && parts_.settle()) return Stop::none;
  save(progress, SaveMode::durable);
  note_saved(progress);
  return Stop::none;
}

bool SaveHook::will_act(const Progress& progress, bool requested) const {
  return requested || parts_.cadence.at_step(progress.step);
}

bool SaveHook::is_due() const {
  const double seconds = parts_.pace != nullptr ? parts_.pace->interval_seconds() : parts_.cadence.seconds;
  return parts_.requests.pending() || (!is_saved_ && seconds > 0 && since_save_.seconds() >= seconds);
}

/// Counts the time in which training stands still; the rest of a save in the background is not in it.
void SaveHook::save(Progress& progress, SaveMode mode) {
  const Stopwatch watch;
  parts_.save(progress, mode);
  progress.save_seconds += watch.seconds();
}

bool SaveHook::is_best(const Progress& progress) const {
  const auto best = progress.best.find(parts_.best_metric);
  return best != progress.best.end() && best->second.step == progress.step;
}

void SaveHook::note_saved(const Progress& progress) {
  is_saved_ = true;
  saved_step_ = progress.step;
  saved_evaluation_ = progress.evaluated_step;
}

}  // namespace gputrain::train
