#include "gputrain/train/replica_hook.hpp"

#include <string>

namespace gputrain::train {

Stop ReplicaHook::after_step(Progress& progress, const StepResult&, bool asked) {
  if (asked || parts_.cadence.at_step(progress.step)) check(progress);
  return Stop::none;
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
