#include "gputrain/train/profile_hook.hpp"

#include <algorithm>
#include <utility>

#include "gputrain/core/log.hpp"
#include "profile/profile_recording.hpp"

namespace gputrain::train {

class ProfileHook::Recording : public ProfileRecording {
 public:
  using ProfileRecording::ProfileRecording;
};

ProfileHook::ProfileHook(Parts parts) : parts_(std::move(parts)) {}
ProfileHook::~ProfileHook() = default;

void ProfileHook::before_training(Progress& progress) {
  if (is_begun_ || parts_.steps == 0) return;  // training goes on after a rollback
  is_begun_ = true;
  const int64_t left = parts_.plan.total_steps - progress.step;
  begin(parts_.steps, progress, std::clamp<int64_t>(left - parts_.steps, 0, kWarmupSteps));
}

void ProfileHook::record(int64_t steps, const Progress& progress) { begin(steps, progress, 0); }

void ProfileHook::begin(int64_t steps, const Progress& progress, int64_t warmup_steps) {
  steps_ = steps;
  first_ = progress.step + warmup_steps;
  last_ = first_ + steps;
  recording_ = std::make_unique<Recording>(parts_.model, parts_.device);
}

void ProfileHook::before_step(const Progress& progress) {
  if (!recording_ || progress.step < first_) return;
  if (!recording_->is_on()) {
    first_ = progress.step;
    last_ = first_ + steps_;
    recording_->start();
  }
  recording_->begin_step();
}

Stop ProfileHook::after_step(Progress& progress, const StepResult&, bool) {
  if (!recording_ || !recording_->is_on()) return Stop::none;
  recording_->end_step();
  if (progress.step >= std::min(last_, parts_.plan.total_steps)) finish(progress);
  return Stop::none;
}

Stop ProfileHook::after_training(Progress& progress, bool) {
  if (recording_ && recording_->is_on() && progress.step > first_) finish(progress);
  recording_.reset();
  return Stop::none;
}

bool ProfileHook::will_act(const Progress& progress, bool requested) const {
  return requested || (recording_ && recording_->is_on() && progress.step >= last_);
}

/// Ends the recording and saves it. Only warns if it cannot: a full disk must not end training.
void ProfileHook::finish(const Progress& progress) {
  const auto recording = std::exchange(recording_, nullptr);
  try {
    parts_.tell_saved(progress, recording->save(parts_.file));
  } catch (const std::exception& failure) {
    log::own_warning(std::string("the profile cannot be written: ") + failure.what());
  }
}

}  // namespace gputrain::train
