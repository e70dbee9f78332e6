// What the utilization of the ranks' devices is computed from.
#pragma once

#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::app {

/// The model's operations, and the peak rate of all ranks in the job's precision: unknown if that of one is. Every rank
/// must call.
train::ModelFlops model_flops(const JobSpec& spec, TrainingSetup& setup);

}  // namespace gputrain::app
