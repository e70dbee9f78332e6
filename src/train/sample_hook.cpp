#include "gputrain/train/sample_hook.hpp"

namespace gputrain::train {

bool SampleHook::will_act(const Progress& progress, bool requested) const {
  const bool is_end = progress.step == parts_.reporting.plan.total_steps;  // a sample is written there anyway
  return !is_end && (requested || parts_.reporting.plan.sample.at_step(progress.step));
}

bool SampleHook::is_due() const {
  const double seconds = parts_.reporting.plan.sample.seconds;
  return seconds > 0 && since_last_.seconds() >= seconds;
}

Stop SampleHook::after_step(Progress& progress, const StepResult&, bool requested) {
  if (!will_act(progress, requested)) return Stop::none;
  since_last_.lap();
  parts_.groups.enter("in the sample after step", progress.step);
  if (parts_.groups.rank() == 0 || parts_.is_collective) parts_.write();
  return Stop::none;
}

}  // namespace gputrain::train
