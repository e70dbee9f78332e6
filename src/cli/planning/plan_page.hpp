// Predictions of `gputrain plan`, as a page or as JSON.
#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/estimate/plan_search.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Breaks lines that are wider than the terminal, and begins what follows with `indent` spaces; a file or a pipe gets
/// them whole.
std::string for_terminal(const std::string& text, size_t indent);
/// Spaces below the label of a line.
constexpr size_t kLabelIndent = 8;
/// Spaces below a sentence, or a line of a job.
constexpr size_t kTextIndent = 2;
/// Returns the line of the job: its model and a step's samples.
std::string job_line(const Job& job, const Plans& plans);
/// Returns tokens, or samples, per second, and which of them.
std::string rate_text(const Plans& plans, const PlanRow& row);
const char* rate_unit(const Plans& plans);
nlohmann::json to_json(const PlanRow& row, bool fits);

/// Returns the lines before the candidates: the job, the GPUs, the constants and their origin.
std::string plan_head(const Job& job, const PlanRequest& request, const Plans& plans);
/// Returns the best candidates as a table, and the first of them as lines of a job.
std::string plan_table(const Plans& plans);
nlohmann::json plan_json(const PlanRequest& request, const Plans& plans);

}  // namespace gputrain::app
