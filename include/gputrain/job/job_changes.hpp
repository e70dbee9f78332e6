// What of a job may be another one when a run goes on from a checkpoint.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/config/load.hpp"

namespace gputrain::app {

/// As a checkpoint keeps them.
nlohmann::json settings_to_json(const std::vector<config::Setting>& settings);

/// Lets a resumed job differ from what the checkpoint at `where` was saved with only where that cannot change results,
/// or where the user accepts that it does. Throws Error(usage) that names every change.
void check_job_changes(const nlohmann::json& saved, const std::vector<config::Setting>& today, bool accept,
                       const std::string& where);

/// Whether the job says that data.val is evaluated on something else than before. A path alone does not: the same data
/// may lie elsewhere.
bool evaluates_otherwise(const nlohmann::json& saved, const std::vector<config::Setting>& today);

}  // namespace gputrain::app
