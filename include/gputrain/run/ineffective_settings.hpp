// Warnings about settings that have no effect in this job.
#pragma once

#include <string>
#include <vector>

#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// Returns one sentence for each key that is not at its default and has no effect on this model and data, with its
/// place: "job.yaml:9:3: eval.interval has no effect: there is no data.val". Ignores effects that depend only on the
/// machine or the number of ranks, because a job may run on several.
std::vector<std::string> ineffective_settings(const Job& job, const TrainingSetup& setup);

}  // namespace gputrain::app
