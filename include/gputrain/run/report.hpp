// report.html: one page without the network, of what a run did in all its attempts.
#pragma once

#include <cstddef>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/job/job.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/summary.hpp"

namespace gputrain::app {

inline constexpr size_t kShownLog = size_t{32} << 10;  // bytes, on a page

/// Keeps what the newest evaluation tells of single samples, for the report. A disk error is a warning.
void write_evaluation(const RunFolder& folder, const nlohmann::ordered_json& details);

/// Reads the file of write_evaluation(); null: there is none.
nlohmann::ordered_json evaluation_in(const RunFolder& folder);

/// Returns the job's settings without secrets: "changed", those that differ from the defaults, and "others".
nlohmann::ordered_json settings_for_page(const Job& job);

/// Writes report.html. `state` is the board's, with settings. A disk error is a warning.
void write_report(const RunFolder& folder, nlohmann::ordered_json state, const monitor::Summary& summary);

}  // namespace gputrain::app
