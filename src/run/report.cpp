#include "gputrain/run/report.hpp"

#include <cmath>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/job/job_changes.hpp"
#include "gputrain/monitor/curves.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/monitor/ledger.hpp"
#include "gputrain/monitor/newest_lines.hpp"
#include "gputrain/monitor/page.hpp"
#include "gputrain/monitor/tracked_settings.hpp"
#include "gputrain/resume/attempt_history.hpp"

namespace gputrain::app {
namespace {

nlohmann::ordered_json attempts_json(const std::vector<PastAttempt>& attempts) {
  auto list = nlohmann::ordered_json::array();
  for (const PastAttempt& attempt : attempts) {
    list.push_back(
        {{"begin", attempt.begin},
         {"seconds", attempt.seconds},
         {"first_step", attempt.first_step},
         {"last_step", attempt.last_step},
         {"end",
          attempt.exit_code ? "exit code " + std::to_string(*attempt.exit_code) + "  " + attempt.reason : "killed"}});
  }
  return list;
}

/// Replaces the board's points, which are thinned out, by all of metrics.jsonl. Points that it lacks, as without the
/// sink jsonl, are added.
void take_curves(const RunFolder& folder, nlohmann::ordered_json& state) {
  monitor::Curves curves;
  curves.read(folder.metrics());
  const int64_t known = curves.last_step();
  for (const auto& point : state["points"]) {
    const int64_t step = point["step"];
    if (step <= known) continue;
    for (const auto& [name, value] : point["metrics"].items())
      curves.add(step, name, value.is_number() ? value.get<double>() : std::nan(""));
  }
  state.erase("points");
  state["curves"] = curves.json();
}

}  // namespace

nlohmann::ordered_json evaluation_in(const RunFolder& folder) {
  auto details = parse_json_file<nlohmann::ordered_json>(folder.evaluation());
  return details.is_object() ? std::move(details) : nullptr;
}

nlohmann::ordered_json settings_for_page(const Job& job) {
  monitor::Settings settings;
  for (const auto& setting : job.loaded.settings()) settings[setting.key] = setting.value;
  const auto safe = monitor::masked(settings);
  const auto defaults = default_settings(job.spec());
  nlohmann::ordered_json all{{"changed", nlohmann::ordered_json::object()},
                             {"others", nlohmann::ordered_json::object()}};
  for (const auto& setting : job.loaded.settings()) {
    const auto usual = defaults.find(setting.key);
    const bool is_default =
        job.loaded.origin(setting.key) == "default" || (usual != defaults.end() && usual->second == setting.value);
    all[is_default ? "others" : "changed"][setting.key] = safe.at(setting.key);
  }
  return all;
}

void write_evaluation(const RunFolder& folder, const nlohmann::ordered_json& details) {
  const std::string text = details.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  try {
    write_file_atomically(folder.evaluation(), text, ExitCode::environment);
  } catch (const Error& failure) {
    log::warning("evaluation.json: " + failure.parts().what);
  }
}

void write_report(const RunFolder& folder, nlohmann::ordered_json state, const monitor::Summary& summary) {
  state["state"] = summary.status;
  auto attempts = attempts_of(monitor::read_ledger(folder.ledger()).lines);
  double all_seconds = 0;
  if (!attempts.empty()) {
    attempts.back().exit_code = summary.exit_code;
    attempts.back().reason = summary.reason;
  }
  for (const PastAttempt& attempt : attempts) all_seconds += attempt.seconds;
  state["attempts"] = attempts_json(attempts);
  const auto add_tile = [&](const char* name, const std::string& text) {
    state["tiles"].push_back(nlohmann::ordered_json::array({name, text}));
  };
  add_tile("wall time", monitor::duration(summary.wall_seconds));
  for (const auto& [part, name] : {std::pair("train", "steps"), {"eval", "evaluations"}, {"save", "saves"}}) {
    const auto seconds =
        state["values"].value("time/" + std::string(part) + "_seconds_total", nlohmann::ordered_json());
    if (seconds.is_number()) add_tile(name, monitor::duration(seconds.get<double>()));
  }
  if (attempts.size() > 1) add_tile("of all attempts", monitor::duration(all_seconds));
  add_tile("memory", monitor::bytes(static_cast<double>(summary.peak_memory_bytes)));
  add_tile("exit code", std::to_string(summary.exit_code));
  state["evaluation"] = evaluation_in(folder);
  take_curves(folder, state);
  state["log"] = monitor::newest_lines(folder.log(0), kShownLog);
  try {
    write_file_atomically(folder.report(), monitor::page_of(monitor::PageKind::run, state), ExitCode::environment);
  } catch (const Error& failure) {
    log::warning("report.html: " + failure.parts().what);
  }
}

}  // namespace gputrain::app
