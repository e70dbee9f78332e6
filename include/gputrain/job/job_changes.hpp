// Changes of a job's settings when a run resumes from a checkpoint.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/config/load.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Writes settings in the JSON format of a checkpoint.
nlohmann::json settings_to_json(const std::vector<config::Setting>& settings);

/// Compares the job with the settings in the checkpoint at `where`. A setting may differ if it cannot change results,
/// or if the user accepts that it does. Throws Error(usage) that lists all other changes.
void check_job_changes(const nlohmann::json& saved, const Job& job, bool accept, const std::string& where);

/// Returns the changes since the checkpoint that the user has to accept.
std::vector<config::Difference> changes_to_accept(const nlohmann::json& saved, const Job& job);

/// Returns, for a hint about a changed job, the ways to train it from its beginning.
std::string ways_to_start_over(const Job& job);

/// Returns the default values of all keys, for this job's data format and schedule.
std::map<std::string, std::string> default_settings(const JobSpec& spec);

/// Returns whether the job evaluates data.val differently than before. A new path alone does not count.
bool evaluates_otherwise(const nlohmann::json& saved, const std::vector<config::Setting>& today);

}  // namespace gputrain::app
