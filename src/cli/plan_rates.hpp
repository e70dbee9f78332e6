// The constants of `gputrain plan`: measured where there are files, else published, else assumed.
#pragma once

#include "gputrain/estimate/step_time.hpp"
#include "gputrain/job/commands.hpp"
#include "gputrain/job/job_spec.hpp"

namespace gputrain::app {

/// Throws Error(usage) for GPUs that are not known, a precision that they lack, and files that are not of `gputrain
/// bench`.
ClusterRates plan_rates(const PlanCommand& command, const JobSpec& spec);

}  // namespace gputrain::app
