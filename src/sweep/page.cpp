#include "page.hpp"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/page.hpp"
#include "gputrain/monitor/tracked_settings.hpp"
#include "gputrain/tasks/task.hpp"

namespace gputrain::app {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr auto kLeast = std::chrono::seconds(2);  // between two pages
constexpr int kShare = 20;                        // the time between pages is so many times that of writing one
constexpr size_t kPoints = 1000;                  // of a curve

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Json settings_of(const Trial& trial) {
  Json settings = Json::object();
  for (const auto& [key, value] : trial.settings) settings[key] = monitor::masked({{key, value}}).at(key);
  return settings;
}

}  // namespace

fs::path run_of_trial(const fs::path& sweep, size_t trial) { return sweep / fmt::format("trial-{:03}", trial + 1); }

SweepPage::SweepPage(const Job& job, fs::path folder)
    : name_(job.name), folder_(std::move(folder)), spec_(*job.spec().sweep) {}

void SweepPage::update(const SweepState& state) {
  if (Clock::now() >= next_) write(state);
}

const monitor::Curves& SweepPage::curves_of(size_t trial) {
  Known& known = known_[trial];
  const fs::path metrics = RunFolder{run_of_trial(folder_, trial)}.metrics();
  std::error_code none;
  const uintmax_t size = fs::file_size(metrics, none);
  if (none || std::exchange(known.size, size) == size) return known.curves;
  known.curves = {};
  known.curves.read(metrics);
  known.curves.keep({spec_.metric, "train/loss"});
  known.curves.thin(kPoints);
  return known.curves;
}

void SweepPage::write(const SweepState& state) {
  const auto begin = Clock::now();
  const bool is_small_better = tasks::smaller_is_better(spec_.metric);
  Json data{{"name", name_},          {"folder", folder_.string()},
            {"state", state.state},   {"time", unix_time()},
            {"metric", spec_.metric}, {"smaller_is_better", is_small_better},
            {"method", spec_.method}, {"metrics", Json::array({spec_.metric, "train/loss"})}};
  for (const SweepParameter& parameter : spec_.parameters)
    data["parameters"].push_back({{"key", parameter.key}, {"scale", parameter.scale}});
  const auto& trials = state.record.trials();
  double first = unix_time();
  for (size_t trial = 0; trial < trials.size(); ++trial)
    if (const double time = curves_of(trial).first_time(); time > 0) first = std::min(first, time);
  for (size_t trial = 0; trial < trials.size(); ++trial) {
    const Trial& one = trials[trial];
    const monitor::Curves& curves = curves_of(trial);
    const bool is_running = !one.is_over() && std::ranges::find(state.running, trial) != state.running.end();
    std::optional<double> value = one.value;
    if (const auto found = curves.by_metric().find(spec_.metric); is_running && found != curves.by_metric().end())
      if (const auto best = found->second.best(is_small_better)) value = best->value;
    const fs::path report = RunFolder{run_of_trial(folder_, trial)}.report();
    std::error_code none;
    data["trials"].push_back(
        {{"trial", trial + 1},
         {"settings", settings_of(one)},
         {"state", is_running ? "running" : one.state},
         {"value", value ? Json(*value) : Json()},
         {"evaluations", one.evaluations},
         {"why", one.why},
         {"end", one.is_over() && curves.last_time() > 0 ? Json(curves.last_time() - first) : Json()},
         {"report", fs::exists(report, none) ? Json(report.lexically_relative(folder_).string()) : Json()},
         {"curves", curves.by_metric().empty() ? Json() : curves.json()}});
  }
  try {
    write_file_atomically(file(), monitor::page_of(monitor::PageKind::sweep, data), ExitCode::environment);
  } catch (const Error& failure) {
    if (!std::exchange(has_failed_, true)) log::warning("sweep.html: " + failure.parts().what);
  }
  next_ = Clock::now() + std::max<Clock::duration>(kLeast, kShare * (Clock::now() - begin));
}

}  // namespace gputrain::app
