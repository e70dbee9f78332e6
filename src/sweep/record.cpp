#include "gputrain/sweep/record.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/inspect/text_table.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/tasks/task.hpp"

namespace gputrain::app {

using nlohmann::ordered_json;

namespace {

ordered_json json_of(const Trial& trial, int64_t number) {
  ordered_json settings = ordered_json::object();
  for (const auto& [key, value] : trial.settings) settings[key] = value;
  ordered_json all{{"trial", number}, {"settings", std::move(settings)}, {"state", trial.state}};
  all["value"] = trial.value ? ordered_json(*trial.value) : ordered_json();
  all["evaluations"] = trial.evaluations;
  if (trial.state == "failed") all.update({{"exit_code", trial.exit_code}, {"why", trial.why}});
  return all;
}

}  // namespace

std::string text_of(const TrialSettings& settings) {
  std::string text;
  for (const auto& [key, value] : settings) text += (text.empty() ? "" : "  ") + key + " " + value;
  return text;
}

SweepRecord::SweepRecord(const SweepSpec& spec, uint64_t seed, std::string job, std::filesystem::path file)
    : metric_(spec.metric),
      job_(std::move(job)),
      file_(std::move(file)),
      rungs_(spec, tasks::smaller_is_better(spec.metric)) {
  for (TrialSettings& settings : trial_settings(spec, seed)) trials_.push_back({.settings = std::move(settings)});
}

void SweepRecord::restore() {
  if (!std::filesystem::exists(file_)) return;
  const auto state = parse_json_file<ordered_json>(file_);
  try {
    if (state.at("metric") != metric_ || state.at("job") != job_)
      throw Error(ExitCode::usage, {.what = "the folder has the sweep of another job, or by another metric",
                                    .where = file_.string(),
                                    .hint = "another --output-dir"});
    const auto& known = state.at("trials");
    for (size_t trial = 0; trial < std::min<size_t>(known.size(), trials_.size()); ++trial)
      restore(trials_[trial], known[trial]);
    Rungs::Reached reached;
    for (const auto& rung : state.at("rungs")) {
      reached.emplace_back();
      for (const auto& one : rung) reached.back()[one.at(0)] = one.at(1);
    }
    rungs_.restore(std::move(reached));
  } catch (const nlohmann::json::exception&) {
    throw Error(ExitCode::data, {.what = "cannot be read", .where = file_.string(), .hint = "another --output-dir"});
  }
}

void SweepRecord::restore(Trial& trial, const ordered_json& known) const {
  TrialSettings settings;
  for (const auto& [key, value] : known.at("settings").items()) settings.emplace_back(key, value.get<std::string>());
  if (settings != trial.settings)
    throw Error(ExitCode::usage, {.what = "the folder has a sweep of other trials: " + text_of(settings),
                                  .where = file_.string(),
                                  .hint = "another --output-dir"});
  constexpr int kDiverged = static_cast<int>(ExitCode::refused);
  if (known.at("state") == "failed" && known.at("exit_code") != kDiverged) return;  // to be tried again
  trial.state = known.at("state");
  if (!known.at("value").is_null()) trial.value = known["value"].get<double>();
  trial.evaluations = known.at("evaluations");
  trial.why = known.value("why", "");
  trial.exit_code = known.value("exit_code", 0);
}

ordered_json SweepRecord::to_json() const {
  ordered_json all{
      {"metric", metric_}, {"job", job_}, {"trials", ordered_json::array()}, {"rungs", ordered_json::array()}};
  for (size_t trial = 0; trial < trials_.size(); ++trial)
    all["trials"].push_back(json_of(trials_[trial], static_cast<int64_t>(trial) + 1));
  for (const auto& rung : rungs_.reached()) {
    auto reached = ordered_json::array();
    for (const auto& [trial, value] : rung) reached.push_back({trial, value});
    all["rungs"].push_back(std::move(reached));
  }
  return all;
}

void SweepRecord::save() const { write_file_atomically(file_, to_json().dump(2) + "\n", ExitCode::environment); }

void SweepRecord::judge(size_t trial, std::vector<double> values) {
  const auto count = [this] {
    return std::accumulate(rungs_.reached().begin(), rungs_.reached().end(), size_t{0},
                           [](size_t sum, const auto& rung) { return sum + rung.size(); });
  };
  const size_t known = count();
  if (const auto end = rungs_.ends_after(static_cast<int64_t>(trial), values)) {
    values.resize(static_cast<size_t>(*end));
    conclude(trial, "ended", values);
  } else if (count() != known) {
    save();
  }
}

void SweepRecord::finish(size_t trial, const std::vector<double>& values) { conclude(trial, "done", values); }

void SweepRecord::fail(size_t trial, int exit_code, std::string why) {
  trials_[trial].exit_code = exit_code;
  trials_[trial].why = std::move(why);
  conclude(trial, "failed", {});
}

void SweepRecord::conclude(size_t trial, const std::string& state, const std::vector<double>& values) {
  Trial& one = trials_[trial];
  one.state = state;
  one.value = rungs_.best(values);
  one.evaluations = std::ssize(values);
  save();
}

std::vector<size_t> SweepRecord::best_first() const {
  std::vector<size_t> order(trials_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t one, size_t other) {
    const auto &a = trials_[one].value, &b = trials_[other].value;
    return a && b ? rungs_.is_better(*a, *b) : a.has_value() && !b.has_value();
  });
  return order;
}

std::string SweepRecord::table() const {
  TextTable table("rrlr" + std::string(trials_.front().settings.size(), 'l'));
  std::vector<std::string> head{"trial", metric_, "state", "evaluations"};
  for (const auto& [key, value] : trials_.front().settings) head.push_back(key);
  table.add(head);
  for (const size_t trial : best_first()) {
    const Trial& one = trials_[trial];
    std::vector<std::string> cells{std::to_string(trial + 1), one.value ? monitor::significant(*one.value) : "-",
                                   one.state, std::to_string(one.evaluations)};
    for (const auto& [key, value] : one.settings) cells.push_back(value);
    table.add(std::move(cells));
  }
  return table.text();
}

}  // namespace gputrain::app
