// A search for good settings: trials of a job, each a run of its own.
#pragma once

#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Runs the trials, some at a time, and writes best.yaml; goes on with a sweep of the same job that was stopped.
/// Returns 0, or the exit code of a stop if it was asked to stop. Throws Error(usage) for a job without a sweep.
int run_sweep(const JobRequest& request, const Job& job, bool json);

}  // namespace gputrain::app
