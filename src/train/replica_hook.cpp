#include "gputrain/train/replica_hook.hpp"

#include <string>

namespace gputrain::train {

Stop ReplicaHook::after_step(Progress& progress, const StepResult&, bool requested) {
  if (will_act(progress, requested)) check(progress);
  return Stop::none;
}

bool ReplicaHook::will_act(const Progress& progress, bool requested) const {
  return requested || parts_.cadence.at_step(progress.step);
}

bool ReplicaHook::is_due() const {
  return parts_.cadence.seconds > 0 && since_check_.seconds() >= parts_.cadence.seconds;
}

void ReplicaHook::check(const Progress& progress) {
  if (parts_.cadence.is_never() || checked_step_ == progress.step) return;
  parallel::check_replicas(parts_.groups, parts_.arena, parts_.buffers, "at step " + std::to_string(progress.step));
  checked_step_ = progress.step;
  since_check_.lap();
}

}  // namespace gputrain::train
