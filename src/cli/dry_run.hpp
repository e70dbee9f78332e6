// `gputrain run --dry-run --world-size N`: a job of N ranks checked on one machine, before anyone rents N cards.
#pragma once

#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Builds the last and the first of the ranks as a run would, takes two small steps on the CPU and tells what the run
/// will do and need; writes nothing. Throws what a run of so many ranks would, and Error(environment) when memory or
/// disk will not do.
int rehearse(const RehearsalRequest& request, const Job& job);

}  // namespace gputrain::app
