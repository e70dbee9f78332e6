// One optimizer step of a few samples, as a run takes it, to see what it needs.
#pragma once

#include <cstdint>

#include "gputrain/setup/assembly.hpp"

namespace gputrain::app {

struct TrialStep {
  int64_t peak_bytes = 0;  // of tensors, beyond what the assembly holds
  double loss = 0;         // mean over the samples' targets
};

/// Changes weights and optimizer state as any step does.
TrialStep take_trial_step(const Job& job, Assembly& assembly, int64_t samples);

}  // namespace gputrain::app
