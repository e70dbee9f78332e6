// Commands that the end of a run names; they work as written, in the same folder.
#pragma once

#include <string>

#include "gputrain/job/job.hpp"
#include "gputrain/job/job_request.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// Returns the command that continues a stopped run of one rank. `resumes`: checkpoint.resume lets the same command do
/// so. `setting`: one that it needs besides, "limits.max_cost=200"; empty: none.
std::string command_to_go_on(const JobRequest& request, bool resumes, const std::string& setting = "");

/// Returns a command that uses the trained model: writes text, or predicts or evaluates on the job's own data; empty:
/// none fits.
std::string command_to_use(const Job& job, const JobRequest& request, const JobDatasets& datasets);

}  // namespace gputrain::app
