// Command `gputrain compare`: shows different settings of runs, their results and speed, and their curves in one chart.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/config/settings_file.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/inspect/text_table.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/job/plugins.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/board.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/monitor/page.hpp"
#include "gputrain/monitor/summary.hpp"
#include "top_sweep.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kCellWidth = 28;

struct ComparedRun {
  std::string name;  // name of the folder
  std::map<std::string, std::string> settings;
  Json summary;
  Json points;  // points of its curves
};

/// Returns the settings, with defaults for keys that are newer than the run. A run with plug-ins has only what is
/// written: no foreign code is loaded to compare settings.
std::map<std::string, std::string> settings_written_in(const fs::path& resolved) {
  if (!plugins_of({.file = resolved}).empty()) return config::recorded_settings(resolved);
  std::map<std::string, std::string> settings;
  for (const auto& setting : load_job({.file = resolved.string()}).loaded.settings())
    settings[setting.key] = setting.value;
  return settings;
}

ComparedRun read_run(const std::string& path) {
  const RunFolder folder{path};
  if (!fs::exists(folder.resolved()))
    throw Error(ExitCode::usage, {.what = "no run has written here", .where = path, .hint = "runs/NAME"});
  ComparedRun run{.name = fs::path(path).lexically_normal().string()};
  while (run.name.ends_with('/')) run.name.pop_back();
  run.settings = settings_written_in(folder.resolved());
  run.summary = monitor::newest_end(folder.summary());
  monitor::Board board;
  board.read_history(folder.metrics());
  run.points = board.json()["points"];
  return run;
}

/// Row of a name, with one cell per run.
using Row = std::pair<std::string, std::vector<std::string>>;

std::vector<Row> differing_settings(const std::vector<ComparedRun>& runs) {
  std::set<std::string> keys;
  for (const ComparedRun& run : runs)
    for (const auto& [key, value] : run.settings) keys.insert(key);
  std::vector<Row> rows;
  for (const std::string& key : keys) {
    if (key == "name" || key == "output_dir") continue;
    Row row{key, {}};
    for (const ComparedRun& run : runs) {
      const auto found = run.settings.find(key);
      row.second.push_back(found == run.settings.end() ? "-" : found->second);
    }
    const bool is_same = std::ranges::all_of(row.second, [&](const auto& cell) { return cell == row.second[0]; });
    if (!is_same) rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<Row> results(const std::vector<ComparedRun>& runs) {
  std::set<std::string> metrics;
  for (const ComparedRun& run : runs) {
    const Json last = run.summary.value("metrics", Json::object());
    for (const auto& [name, value] : last.items()) metrics.insert(name);
  }
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, const auto& cell_of) {
    Row row{name, {}};
    for (const ComparedRun& run : runs) row.second.push_back(cell_of(run));
    rows.push_back(std::move(row));
  };
  const auto shown = [](const Json& value) {
    return value.is_number() ? monitor::significant(value.get<double>()) : std::string("-");
  };
  add("status", [](const ComparedRun& run) { return run.summary.value("status", "unknown"); });
  add("step", [&](const ComparedRun& run) { return shown(run.summary.value("step", Json())); });
  for (const std::string& name : metrics)
    add(name, [&](const ComparedRun& run) {
      return shown(run.summary.value("metrics", Json::object()).value(name, Json()));
    });
  for (const char* name : {"tokens_per_second", "samples_per_second"})
    add(name, [&](const ComparedRun& run) {
      return shown(run.summary.value("throughput", Json::object()).value(name, Json()));
    });
  add("wall_seconds", [&](const ComparedRun& run) { return shown(run.summary.value("wall_seconds", Json())); });
  return rows;
}

std::string table_of(const std::string& title, const std::vector<ComparedRun>& runs, const std::vector<Row>& rows) {
  if (rows.empty()) return title + "  equal\n";
  TextTable table("l" + std::string(runs.size(), 'l'));
  std::vector<std::string> head{title};
  for (const ComparedRun& run : runs) head.push_back(shortened(run.name, kCellWidth));
  table.add(head);
  for (const auto& [name, cells] : rows) {
    std::vector<std::string> line{"  " + name};
    for (const std::string& cell : cells) line.push_back(shortened(cell, kCellWidth));
    table.add(line);
  }
  return table.text();
}

/// Returns one page with all curves; each is named after its run.
std::string page_of(const std::vector<ComparedRun>& runs) {
  Json state{{"name", "compare"}, {"run_id", ""},
             {"folder", ""},      {"state", std::to_string(runs.size()) + " runs"},
             {"time", 0},         {"values", Json::object()}};
  state["alerts"] = Json::array();
  state["events"] = Json::array();
  state["points"] = Json::array();
  for (const ComparedRun& run : runs) {
    for (const auto& point : run.points) {
      Json named = point;
      named["metrics"] = Json::object();
      for (const auto& [name, value] : point["metrics"].items()) named["metrics"][name + " " + run.name] = value;
      state["points"].push_back(std::move(named));
    }
  }
  return monitor::report_page(state);
}

Json json_of(const std::vector<ComparedRun>& runs, const std::vector<Row>& settings, const std::vector<Row>& found) {
  Json all{{"runs", Json::array()}, {"settings", Json::object()}, {"results", Json::object()}};
  for (const ComparedRun& run : runs) all["runs"].push_back(run.name);
  for (const auto& [name, cells] : settings) all["settings"][name] = cells;
  for (const auto& [name, cells] : found) all["results"][name] = cells;
  return all;
}

}  // namespace

int compare_command(const CompareCommand& command) {
  std::vector<ComparedRun> runs;
  for (const std::string& path : command.runs) {
    if (!is_sweep(path))
      runs.push_back(read_run(path));
    else
      for (const fs::path& trial : trials_of(path)) runs.push_back(read_run(trial.string()));
  }
  if (runs.size() < 2)
    throw Error(ExitCode::usage,
                {.what = "there is nothing to compare with", .where = command.runs.front(), .hint = "another run"});
  const auto settings = differing_settings(runs), found = results(runs);
  if (!command.html.empty()) write_file_atomically(command.html, page_of(runs), ExitCode::environment);
  if (command.json) {
    std::printf("%s\n", json_of(runs, settings, found).dump(2).c_str());
  } else {
    std::printf("%s\n%s", table_of("settings", runs, settings).c_str(), table_of("results", runs, found).c_str());
  }
  return 0;
}

}  // namespace gputrain::app
