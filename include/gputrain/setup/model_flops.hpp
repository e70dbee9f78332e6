// Facts for the utilization of the ranks' devices.
#pragma once

#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::app {

/// Returns the model's operations, and the peak rate of all ranks in the job's precision, which is unknown if that of
/// one rank is. Every rank must call.
train::ModelFlops model_flops(const JobSpec& spec, TrainingSetup& setup);

}  // namespace gputrain::app
