// Predictions of `gputrain plan`, as a page or as JSON.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/estimate/plan_search.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Returns the lines before the candidates: the job, the GPUs, the constants and their origin.
std::string plan_head(const Job& job, const PlanRequest& request, const Plans& plans);
/// Returns the best candidates as a table, and the first of them as lines of a job.
std::string plan_table(const Plans& plans);
nlohmann::json plan_json(const PlanRequest& request, const Plans& plans);

}  // namespace gputrain::app
