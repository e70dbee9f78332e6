// One real optimizer step with a few samples, to measure its memory.
#pragma once

#include <cstdint>

#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

struct TrialStep {
  int64_t peak_bytes = 0;  // peak of tensors, in addition to those of the assembly
  int64_t host_bytes = 0;  // of activations that wait in the host's memory
  double loss = 0;         // mean over the samples' targets
};

/// Takes a real step of so many micro-batches, which changes weights and optimizer state.
TrialStep take_trial_step(const Job& job, TrainingSetup& setup, int64_t samples, int64_t micro_batches = 1);

}  // namespace gputrain::app
