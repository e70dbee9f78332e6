#include "top_runs.hpp"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/config/settings_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/inspect/text_table.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/job/run_lock.hpp"
#include "gputrain/monitor/curves.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/monitor/ledger.hpp"
#include "gputrain/resume/attempt_history.hpp"
#include "gputrain/tasks/task.hpp"
#include "run_state.hpp"
#include "top_sweep.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using Listed = nlohmann::ordered_json;  // a run

double unix_time() { return static_cast<double>(std::time(nullptr)); }

bool is_run(const fs::path& folder) {
  std::error_code unknown;
  return exists(RunFolder{folder}.resolved(), unknown) || exists(RunFolder{folder}.summary(), unknown);
}

/// Returns the best value of the main metric on data.val, or else of a loss.
Listed best_of(const monitor::Curves& curves, const std::string& main_metric) {
  for (const std::string& name : {main_metric, std::string("val/loss"), std::string("train/loss")}) {
    const auto curve = curves.by_metric().find(name);
    if (curve == curves.by_metric().end()) continue;
    const auto best = curve->second.best(tasks::smaller_is_better(name));
    if (best) return {{"metric", name}, {"value", best->value}, {"step", best->step}};
  }
  return nullptr;
}

/// Returns what a run that goes on says of itself; null: it does not answer.
nlohmann::json answer_of_run(const fs::path& run) {
  try {
    return state_of(run.string());
  } catch (const Error&) {
    return nullptr;
  }
}

/// Adds the state, and what is known of an end.
void add_state(Listed& row, const fs::path& run, const nlohmann::json& end, const nlohmann::json& answer) {
  const std::string status = json_value(end, "status", "begun");
  if (answer.is_object() || is_in_use(run)) {
    row["state"] = json_value(answer, "state", "") == "paused" ? "paused" : "running";
  } else if (status != "begun") {
    row["state"] = status;
    for (const char* key : {"exit_code", "stopped_by", "reason"})
      if (end.contains(key)) row[key] = end[key];
  } else if (const std::string host = other_host_of(run); !host.empty()) {
    row["state"] = "elsewhere";
    row["host"] = host;
  } else {
    row["state"] = "lost";
  }
}

Listed read_listed(const fs::path& run) {
  const RunFolder folder{run};
  const auto ledger = monitor::read_ledger(folder.ledger()).lines;
  const auto attempts = attempts_of(ledger);
  const PastAttempt newest = attempts.empty() ? PastAttempt() : attempts.back();
  monitor::Curves curves;
  curves.read(folder.metrics());
  std::map<std::string, std::string> settings;
  if (exists(folder.resolved())) settings = config::recorded_settings(folder.resolved());
  const nlohmann::json end = parse_json_file(folder.summary()), answer = answer_of_run(run);
  const nlohmann::json values = answer.is_object() ? answer.at("values") : nlohmann::json();
  const double written = ledger.empty() ? 0 : json_value(ledger.back(), "time", 0.0);
  const double sign = std::max({curves.last_time(), written, json_value(values, "last_step_timestamp_seconds", 0.0)});
  double seconds = answer.is_object() ? std::max(0.0, unix_time() - written) : 0;  // since the ledger's newest line
  for (const PastAttempt& attempt : attempts) seconds += attempt.seconds;
  const int64_t known_step = json_value(end, "step", std::max(curves.last_step(), newest.last_step));
  const double price = std::strtod(settings["limits.price_per_hour"].c_str(), nullptr);
  const double limit = std::strtod(settings["limits.max_cost"].c_str(), nullptr);
  const auto if_positive = [](auto value) { return value > 0 ? Listed(value) : Listed(); };

  Listed row;
  row["run"] = run.string();
  add_state(row, run, end, answer);
  row["step"] = static_cast<int64_t>(json_value(values, "steps_total", static_cast<double>(known_step)));
  row["planned_steps"] = if_positive(newest.planned_steps);
  row["best"] = best_of(curves, newest.main_metric);
  row["attempts"] = attempts.size();
  row["total_seconds"] = seconds;
  row["cost"] = if_positive(seconds / 3600 * price);
  row["cost_limit"] = if_positive(limit);
  row["began"] = if_positive(attempts.empty() ? 0.0 : attempts.front().begin);
  row["last_sign"] = if_positive(sign);
  return row;
}

/// Returns the row of a run whose files cannot be read.
Listed unreadable(const fs::path& run, const std::exception& failure) {
  Listed row{{"run", run.string()}, {"state", "unreadable"}, {"reason", failure.what()}};
  for (const char* key :
       {"step", "planned_steps", "best", "attempts", "total_seconds", "cost", "cost_limit", "began", "last_sign"})
    row[key] = nullptr;
  return row;
}

bool is_going_on(const Listed& row) { return row["state"] == "running" || row["state"] == "paused"; }

/// Returns the state with its cause: "stopped max_duration", "failed exit 3", "on node7".
std::string state_text(const Listed& row) {
  const std::string state = row["state"];
  std::string by = row.value("stopped_by", "");
  if (by.starts_with("limits.")) by.erase(0, by.find('.') + 1);
  if (state == "stopped" && !by.empty()) return state + " " + by;
  if (state == "failed" && row.contains("exit_code")) return state + " exit " + row["exit_code"].dump();
  return state == "elsewhere" ? "on " + row["host"].get<std::string>() : state;
}

/// Returns "12.40/100", or "12.40" without a limit.
std::string cost_text(const Listed& row) {
  if (row["cost"].is_null()) return "-";
  const Listed& limit = row["cost_limit"];
  return monitor::money(row["cost"]) + (limit.is_null() ? "" : "/" + monitor::significant(limit));
}

/// Returns the table of the runs, with names of at most so many characters.
TextTable table_of_runs(const std::vector<Listed>& rows, const fs::path& folder, size_t most) {
  const bool has_cost = std::ranges::any_of(rows, [](const Listed& row) { return !row["cost"].is_null(); });
  std::set<std::string> metrics;
  for (const Listed& row : rows)
    if (!row["best"].is_null()) metrics.insert(row["best"]["metric"].get<std::string>());
  const bool is_one = metrics.size() == 1;
  const auto shown = [](const Listed& value, const auto& text_of_number) {
    return value.is_null() ? std::string("-") : text_of_number(value.get<double>());
  };
  const auto count = [](double value) { return grouped(static_cast<int64_t>(value)); };
  const auto age = [](double time) { return monitor::duration(std::max(1.0, unix_time() - time)); };
  constexpr size_t kLongestState = 20;
  TextTable table("llrrrrrr");
  table.add(
      {"run", "state", "seen", "step", is_one ? *metrics.begin() : "best", "time", has_cost ? "cost" : "", "began"});
  for (const Listed& row : rows) {
    const fs::path run = row["run"].get<std::string>();
    const std::string name = (run == folder ? run.filename() : run.lexically_relative(folder)).string();
    const Listed& best = row["best"];
    const std::string metric = is_one || best.is_null() ? "" : best["metric"].get<std::string>() + " ";
    const std::string planned = row["planned_steps"].is_null() ? "" : "/" + shown(row["planned_steps"], count);
    table.add({shortened(name, most), shortened(state_text(row), kLongestState), shown(row["last_sign"], age),
               shown(row["step"], count) + planned,
               metric + shown(best.is_null() ? best : best["value"], monitor::significant),
               shown(row["total_seconds"], monitor::duration), has_cost ? cost_text(row) : "",
               shown(row["began"], age)});
  }
  return table;
}

}  // namespace

std::vector<fs::path> runs_in(const fs::path& folder) {
  if (is_sweep(folder)) return trials_of(folder);
  if (is_run(folder)) return {folder};
  std::set<fs::path> runs;
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
    if (is_run(entry.path())) runs.insert(entry.path());
    if (!is_sweep(entry.path())) continue;
    const std::vector<fs::path> trials = trials_of(entry.path());
    runs.insert(trials.begin(), trials.end());
  }
  return {runs.begin(), runs.end()};
}

std::vector<Listed> listed_runs(const fs::path& folder) {
  std::vector<Listed> rows;
  for (const fs::path& run : runs_in(folder)) {
    try {
      rows.push_back(read_listed(run));
    } catch (const std::exception& failure) {  // the others are listed
      rows.push_back(unreadable(run, failure));
    }
  }
  std::ranges::stable_sort(rows, {}, [](const Listed& row) {
    return std::pair(!is_going_on(row), row["began"].is_null() ? 0.0 : -row["began"].get<double>());
  });
  return rows;
}

TopPage runs_page(const fs::path& folder, const TopSize& size) {
  const std::vector<Listed> rows = listed_runs(folder);
  constexpr size_t kLongestName = 40, kShortestName = 12;
  size_t most = kLongestName;
  TextTable table = table_of_runs(rows, folder, most);
  while (table.text().find('\n') > size.columns && most > kShortestName) table = table_of_runs(rows, folder, --most);
  std::map<std::string, int64_t> counts;
  for (const Listed& row : rows) ++counts[row["state"].get<std::string>()];
  std::string head = counted(std::ssize(rows), "run");
  for (const auto& [state, count] : counts) head += "  " + grouped(count) + " " + state;
  TopPage page{.lines = {head}, .goes_on = std::ranges::any_of(rows, is_going_on)};
  std::istringstream lines(table.text(size.columns, {"began", "seen"}));
  for (std::string line; std::getline(lines, line);) page.lines.push_back(line.substr(0, size.columns));
  return page;
}

}  // namespace gputrain::app
