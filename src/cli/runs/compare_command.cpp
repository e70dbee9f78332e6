// Command `gputrain compare`: shows different settings of runs, their results and speed, and a chart for each metric.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
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
#include "gputrain/monitor/curves.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/monitor/page.hpp"
#include "gputrain/monitor/short_names.hpp"
#include "gputrain/monitor/summary.hpp"
#include "gputrain/tasks/task.hpp"
#include "top_runs.hpp"
#include "top_sweep.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kCellWidth = 28;
constexpr const char* kBest = "  best";  // row below a metric's last values

struct ComparedRun {
  fs::path path;
  std::string name;  // the part of the path that tells it from the other runs
  std::map<std::string, std::string> settings;
  Json summary;
  monitor::Curves curves;
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

ComparedRun read_run(const fs::path& path) {
  const RunFolder folder{path};
  if (!fs::exists(folder.resolved()))
    throw Error(ExitCode::usage, {.what = "no run has written here", .where = path.string(), .hint = "runs/NAME"});
  ComparedRun run{.path = path};
  run.settings = settings_written_in(folder.resolved());
  run.summary = monitor::newest_end(folder.summary());
  run.curves.read(folder.metrics());
  return run;
}

/// Returns the folders, with the trials of a sweep and the runs of a folder in its place.
std::vector<fs::path> folders_of(const std::vector<std::string>& paths) {
  std::vector<fs::path> folders;
  for (const std::string& path : paths) {
    fs::path folder = fs::path(path).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();
    std::vector<fs::path> runs = runs_in(folder);
    std::erase_if(runs, [](const fs::path& run) { return !exists(RunFolder{run}.resolved()); });  // has no settings
    if (runs.empty() && is_sweep(folder))
      throw Error(ExitCode::usage, {.what = "no trial of this sweep has begun", .where = folder.string()});
    if (runs.empty()) runs.push_back(std::move(folder));
    folders.insert(folders.end(), runs.begin(), runs.end());
  }
  return folders;
}

/// A metric of all runs; a run may lack it.
struct ComparedMetric {
  std::string name;
  std::vector<std::optional<double>> last = {};
  std::vector<std::optional<monitor::Curve::Point>> best = {};  // empty: neither great nor small values are better
  std::optional<size_t> winner = {};                            // run with the best value
};

ComparedMetric compared(const std::string& name, const std::vector<ComparedRun>& runs) {
  ComparedMetric metric{.name = name};
  const bool has_best = tasks::find_metric(name) != nullptr, is_small_better = tasks::smaller_is_better(name);
  for (const ComparedRun& run : runs) {
    const auto curve = run.curves.by_metric().find(name);
    const Json last = run.summary.value("metrics", Json::object()).value(name, Json());
    const bool is_drawn = curve != run.curves.by_metric().end();
    metric.last.push_back(last.is_number() ? std::optional(last.get<double>())
                          : is_drawn       ? std::optional(curve->second.values.back())
                                           : std::nullopt);
    if (!has_best) continue;
    metric.best.push_back(is_drawn ? curve->second.best(is_small_better) : std::nullopt);
    if (!metric.best.back()) continue;
    const double value = metric.best.back()->value;
    const double least = metric.winner ? metric.best[*metric.winner]->value : value;
    if (!metric.winner || (is_small_better ? value < least : value > least)) metric.winner = metric.best.size() - 1;
  }
  return metric;
}

/// Returns the metrics of the runs' ends, or also those that have curves alone.
std::vector<ComparedMetric> compared_metrics(const std::vector<ComparedRun>& runs, bool with_all_curves) {
  std::set<std::string> names;
  for (const ComparedRun& run : runs) {
    const Json last = run.summary.value("metrics", Json::object());
    for (const auto& [name, value] : last.items()) names.insert(name);
    for (const auto& [name, curve] : run.curves.by_metric())
      if (with_all_curves || name == "train/loss") names.insert(name);
  }
  std::vector<ComparedMetric> metrics;
  for (const std::string& name : names) metrics.push_back(compared(name, runs));
  return metrics;
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

/// Returns the time of all attempts; null: unknown.
Json seconds_of(const ComparedRun& run) {
  const Json of_newest = run.summary.value("wall_seconds", Json());  // what older programs have
  return run.summary.value("total_seconds", of_newest);
}

std::vector<Row> results(const std::vector<ComparedRun>& runs) {
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, const auto& cell_of) {
    Row row{name, {}};
    for (size_t run = 0; run < runs.size(); ++run) row.second.push_back(cell_of(run));
    rows.push_back(std::move(row));
  };
  const auto shown = [](const Json& value) {
    return value.is_number() ? monitor::significant(value.get<double>()) : std::string("-");
  };
  add("status", [&](size_t run) { return runs[run].summary.value("status", "unknown"); });
  add("step", [&](size_t run) { return shown(runs[run].summary.value("step", Json())); });
  for (const ComparedMetric& metric : compared_metrics(runs, /*with_all_curves=*/false)) {
    add(metric.name, [&](size_t run) { return metric.last[run] ? monitor::significant(*metric.last[run]) : "-"; });
    if (metric.best.empty()) continue;
    add(kBest, [&](size_t run) {
      const auto& best = metric.best[run];
      return best ? monitor::significant(best->value) + " at " + grouped(best->step) : "-";
    });
  }
  for (const char* name : {"tokens_per_second", "samples_per_second"}) {
    const auto rate = [&](size_t run) {
      return runs[run].summary.value("throughput", Json::object()).value(name, 0.0);
    };
    bool is_known = false;  // data without tokens has no rate of them
    for (size_t run = 0; run < runs.size(); ++run) is_known = is_known || rate(run) > 0;
    if (is_known) add(name, [&](size_t run) { return monitor::significant(rate(run)); });
  }
  add("total_seconds", [&](size_t run) { return shown(seconds_of(runs[run])); });
  if (std::ranges::any_of(runs, [](const ComparedRun& run) { return run.summary.contains("cost"); }))
    add("cost", [&](size_t run) { return shown(runs[run].summary.value("cost", Json())); });
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

/// Returns the page with a chart for each metric; page/compare.js reads its data.
std::string page_of(const std::vector<ComparedRun>& runs, const std::vector<Row>& settings) {
  Json data{
      {"runs", Json::array()}, {"metrics", Json::array()}, {"settings", Json::array()}, {"results", Json::array()}};
  for (const ComparedRun& run : runs)
    data["runs"].push_back({{"name", run.name},
                            {"path", run.path.string()},
                            {"status", run.summary.value("status", "unknown")},
                            {"step", run.summary.value("step", Json())},
                            {"total_seconds", seconds_of(run)},
                            {"curves", run.curves.json()}});
  for (const auto& [key, cells] : settings) data["settings"].push_back(Json::array({key, cells}));
  for (const ComparedMetric& metric : compared_metrics(runs, /*with_all_curves=*/true)) {
    Json row{{"name", metric.name}, {"last", Json::array()}};
    for (const auto& last : metric.last) row["last"].push_back(last ? Json(*last) : Json());
    for (const auto& best : metric.best) {
      row["best"].push_back(best ? Json(best->value) : Json());
      row["at"].push_back(best ? Json(best->step) : Json());
    }
    if (metric.winner) row["winner"] = *metric.winner;
    data["results"].push_back(std::move(row));
    const auto is_drawn = [&](const ComparedRun& run) { return run.curves.by_metric().contains(metric.name); };
    if (std::ranges::any_of(runs, is_drawn)) data["metrics"].push_back(metric.name);
  }
  return monitor::page_of(monitor::PageKind::comparison, data);
}

Json json_of(const std::vector<ComparedRun>& runs, const std::vector<Row>& settings, const std::vector<Row>& found) {
  Json all{
      {"runs", Json::array()}, {"settings", Json::object()}, {"results", Json::object()}, {"best", Json::object()}};
  for (const ComparedRun& run : runs) all["runs"].push_back(run.path.string());
  for (const auto& [name, cells] : settings) all["settings"][name] = cells;
  for (size_t row = 0; row < found.size(); ++row) {
    const auto& [name, cells] = found[row];
    if (name == kBest)
      all["best"][found[row - 1].first] = cells;
    else
      all["results"][name] = cells;
  }
  return all;
}

}  // namespace

int compare_command(const CompareCommand& command) {
  std::vector<ComparedRun> runs;
  for (const fs::path& path : folders_of(command.runs)) runs.push_back(read_run(path));
  if (runs.size() < 2)
    throw Error(ExitCode::usage,
                {.what = "there is nothing to compare with", .where = command.runs.front(), .hint = "another run"});
  std::vector<std::string> paths;
  for (const ComparedRun& run : runs) paths.push_back(run.path.string());
  const auto names = monitor::short_names(paths);
  for (size_t run = 0; run < runs.size(); ++run) runs[run].name = names[run];
  const auto settings = differing_settings(runs), found = results(runs);
  if (!command.html.empty()) write_file_atomically(command.html, page_of(runs, settings), ExitCode::environment);
  if (command.json) {
    std::printf("%s\n", json_of(runs, settings, found).dump(2).c_str());
  } else {
    std::printf("%s\n%s", table_of("settings", runs, settings).c_str(), table_of("results", runs, found).c_str());
  }
  return 0;
}

}  // namespace gputrain::app
