#include "top_sweep.hpp"

#include <algorithm>
#include <sstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/inspect/text_table.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/job/run_lock.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/tasks/task.hpp"
#include "run_state.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecord = "sweep.json";

fs::path run_of(const fs::path& sweep, int64_t trial) { return sweep / fmt::format("trial-{:03}", trial); }

/// Returns the step of a trial that is training; empty: none answers there.
std::string step_of(const fs::path& run) {
  if (!exists(RunFolder{run}.resolved())) return {};
  try {
    const nlohmann::json values = state_of(run.string()).at("values");
    const auto count = [&](const char* name) { return grouped(static_cast<int64_t>(values.value(name, 0.0))); };
    return "training, step " + count("steps_total") + "/" + count("planned_steps");
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

bool is_sweep(const fs::path& folder) {
  std::error_code unknown;
  return exists(folder / kRecord, unknown) && !exists(RunFolder{folder}.resolved(), unknown);
}

std::vector<fs::path> trials_of(const fs::path& sweep) {
  std::vector<fs::path> runs;
  const auto record = parse_json_file(sweep / kRecord);
  const auto trials = record.is_object() ? record.value("trials", nlohmann::json::array()) : nlohmann::json::array();
  for (int64_t trial = 1; trial <= std::ssize(trials); ++trial)
    if (const fs::path run = run_of(sweep, trial); exists(RunFolder{run}.resolved())) runs.push_back(run);
  return runs;
}

TopPage sweep_page(const fs::path& sweep, const TopSize& size) try {
  const auto record = parse_json_file<nlohmann::ordered_json>(sweep / kRecord);
  const auto metric = record.at("metric").get<std::string>();
  auto trials = record.at("trials").get<std::vector<nlohmann::ordered_json>>();
  const double sign = tasks::smaller_is_better(metric) ? 1 : -1;
  std::ranges::stable_sort(trials, {}, [&](const auto& trial) {
    const auto& value = trial.at("value");
    return std::pair(value.is_null(), value.is_null() ? 0.0 : sign * value.template get<double>());
  });
  TopPage page;
  TextTable table("rrll");
  table.add({"trial", metric, "state", "settings"});
  int64_t over = 0;
  for (const auto& trial : trials) {
    std::string state = trial.at("state"), settings;
    over += state == "waiting" ? 0 : 1;
    const std::string step = state == "waiting" ? step_of(run_of(sweep, trial.at("trial"))) : "";
    page.goes_on = page.goes_on || !step.empty();
    if (!step.empty()) state = step;
    for (const auto& [key, value] : trial.at("settings").items())
      settings += (settings.empty() ? "" : "  ") + key + " " + value.template get<std::string>();
    const auto& value = trial.at("value");
    table.add({std::to_string(trial.at("trial").get<int64_t>()),
               value.is_null() ? "-" : monitor::significant(value.get<double>()), state, settings});
  }
  page.goes_on = page.goes_on || is_in_use(sweep);  // also between two trials
  page.lines.push_back(
      fmt::format("sweep {}  {} of {} over", sweep.string(), over, counted(std::ssize(trials), "trial")));
  std::istringstream text(table.text());
  for (std::string line; std::getline(text, line) && page.lines.size() < size.rows;)
    page.lines.push_back(line.substr(0, size.columns));
  return page;
} catch (const nlohmann::json::exception& failure) {
  throw Error(ExitCode::data, {.what = "cannot be read: " + reason_in(failure), .where = (sweep / kRecord).string()});
}

}  // namespace gputrain::app
