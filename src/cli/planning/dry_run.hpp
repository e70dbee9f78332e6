// Command `gputrain run --dry-run --world-size N`: checks a job of N ranks on one machine, before anyone rents N GPUs.
#pragma once

#include "gputrain/job/job.hpp"
#include "gputrain/run/run_request.hpp"

namespace gputrain::app {

/// Builds the last and the first rank as a run would, takes small steps on the CPU, and prints what the run will do and
/// need. Pretrained weights may be missing where their config.json is: then no loss is known. Writes nothing. Throws
/// the errors of such a run, and Error(environment) if memory or disk is too small.
int simulate_dry_run(const DryRunRequest& request, const Job& job);

}  // namespace gputrain::app
