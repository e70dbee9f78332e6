// What of a job may be another one when a run goes on from a checkpoint.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/config/load.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// As a checkpoint keeps them.
nlohmann::json settings_to_json(const std::vector<config::Setting>& settings);

/// Lets a resumed job differ from what the checkpoint at `where` was saved with only where that cannot change results,
/// or where the user accepts that it does. Throws Error(usage) that names every change.
void check_job_changes(const nlohmann::json& saved, const Job& job, bool accept, const std::string& where);

/// The values of keys that nobody sets, for this job's formats and schedule.
std::map<std::string, std::string> default_settings(const JobSpec& spec);

/// Whether the job says that data.val is evaluated on something else than before. A path alone does not: the same data
/// may lie elsewhere.
bool evaluates_otherwise(const nlohmann::json& saved, const std::vector<config::Setting>& today);

}  // namespace gputrain::app
