#include "gputrain/run/ending.hpp"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/process.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/resume/record.hpp"

namespace gputrain::app {

using monitor::significant;

namespace {

struct StopWords {
  const char *by, *reason;  // `by` for programs, `reason` for people
};

StopWords words_of(train::Stop stop) {
  switch (stop) {
    case train::Stop::max_duration:
      return {"limits.max_duration", "limits.max_duration reached"};
    case train::Stop::notice:
      return {"notice", "the machine is about to be taken away"};
    case train::Stop::restart:
      return {"SIGUSR1", "asked to make way (SIGUSR1)"};
    case train::Stop::ordered:
      return {"order", "stopped by an order"};
    case train::Stop::spent:
      return {"limits.max_cost", "limits.max_cost reached"};
    case train::Stop::idle:
      return {"limits.idle", "limits.idle reached"};
    case train::Stop::interrupted:
      return {"SIGINT", "interrupted (SIGINT)"};
    default:
      return {"SIGTERM", "terminated (SIGTERM or SIGHUP)"};
  }
}

std::string sent_text(const monitor::Summary& summary) {
  const auto sent = static_cast<double>(summary.sent_bytes_per_step);
  const auto full = static_cast<double>(summary.uncompressed_bytes_per_step);
  if (sent == 0) return "";
  return "  sent " + monitor::bytes(sent) + " a step" + (sent == full ? "" : " instead of " + monitor::bytes(full));
}

std::string speed_text(const monitor::Summary& summary) {
  const bool is_text = summary.tokens > 0;
  const double rate = is_text ? summary.tokens_per_second : summary.samples_per_second;
  const std::string unit = is_text ? " tok/s  " : " samples/s  ";
  return (rate > 0 ? monitor::compact(rate) + unit : "") +  // no rate if there was only one step
         "first step after " + monitor::duration(summary.first_step_seconds) + "  memory " +
         monitor::bytes(summary.peak_memory_bytes) + sent_text(summary);
}

}  // namespace

Expectation check_expectation(const JobSpec& spec, const monitor::Metrics& metrics) {
  Expectation expectation;
  if (!spec.expect) return expectation;
  for (const auto& [name, band] : spec.expect->bands) {
    expectation.exists = true;
    const auto found = metrics.find(name);
    const bool met = found != metrics.end() && found->second >= band[0] && found->second <= band[1];
    expectation.met = expectation.met && met;
    expectation.text += (expectation.text.empty() ? "" : ", ") + name + " " +
                        (found == metrics.end() ? "missing" : significant(found->second)) +
                        (met ? " in [" : " not in [") + significant(band[0]) + ", " + significant(band[1]) + "]";
  }
  return expectation;
}

void check_expected_metrics(const JobSpec& spec, const JobDatasets& datasets) {
  if (!spec.expect) return;
  std::vector<std::string> measured{"train/loss"};
  for (const auto& [split, is_there] :
       {std::pair("val", datasets.val != nullptr), {"test", datasets.test != nullptr}}) {
    if (!is_there) continue;
    for (const auto& metric : datasets.task->metrics()) measured.push_back(std::string(split) + "/" + metric.name);
  }
  for (const auto& [name, band] : spec.expect->bands) {
    if (name.starts_with("train/") || std::ranges::find(measured, name) != measured.end()) continue;
    std::string all;
    for (const auto& each : measured) all += (all.empty() ? "" : ", ") + each;
    throw Error(ExitCode::usage, {.what = "expect: " + name + " is not measured by this job", .hint = all});
  }
}

monitor::Summary summarize(const Job& job, const RankContext& context, const train::Plan& plan,
                           const train::Progress& progress, const train::LogHook& log) {
  monitor::Summary summary;
  summary.run_id = job.run_id;
  summary.step = progress.step;
  summary.epoch = plan.epochs_in(progress.step);
  summary.samples = progress.usage.samples;
  summary.tokens = progress.tokens;
  summary.world_size = context.groups.world_size();
  summary.attempts = progress.attempts;
  summary.metrics = progress.metrics;
  summary.best = progress.best;
  summary.samples_per_second = log.samples_per_second();
  summary.tokens_per_second = log.tokens_per_second();
  summary.wall_seconds = seconds_since_process_start();
  summary.first_step_seconds = log.first_step_seconds();
  summary.peak_memory_bytes =
      context.device.is_cpu() ? device::peak_resident_bytes() : device::peak_allocated_bytes(context.device);
  return summary;
}

void keep_measured(monitor::Summary& summary, const nlohmann::ordered_json& earlier) {
  if (summary.first_step_seconds > 0) return;
  try {
    if (earlier.at("run_id") != summary.run_id) return;
    const auto& throughput = earlier.at("throughput");
    summary.samples_per_second = throughput.at("samples_per_second").get<double>();
    summary.tokens_per_second = throughput.at("tokens_per_second").get<double>();
    summary.first_step_seconds = earlier.at("first_step_seconds").get<double>();
  } catch (const nlohmann::json::exception&) {  // there is none, or another program wrote it
  }
}

monitor::Metrics tested_before(const nlohmann::ordered_json& earlier, const std::string& run_id, int64_t step,
                               comm::ProcessGroups& groups) {
  auto known = nlohmann::ordered_json::object();
  try {
    if (groups.rank() == 0 && earlier.at("run_id") == run_id && earlier.at("step") == step) {
      for (const auto& [name, value] : earlier.at("metrics").items())
        if (name.starts_with("test/") && value.is_number()) known[name] = value;
    }
  } catch (const nlohmann::json::exception&) {  // there is none, or another program wrote it
  }
  const auto heard = parse_json(groups.from_rank_zero(known.dump(), "what was tested before"));
  return heard.is_object() ? heard.get<monitor::Metrics>() : monitor::Metrics();
}

void record_failed_start(const std::exception& failure, const std::string& run_id, const RunFolder& folder) {
  const int code = exit_code_of(failure);
  try {
    if (code == static_cast<int>(ExitCode::usage)) return monitor::restore_newest_end(folder.summary());
    monitor::write_beginning(folder.summary(),
                             {.run_id = run_id, .status = "failed", .exit_code = code, .reason = reason_of(failure)});
  } catch (const Error& second) {
    log::warning(second.what());  // the first failure is the one to report
  }
}

void conclude(monitor::Summary& summary, const train::Outcome& outcome, const Expectation& expectation, bool verify) {
  if (outcome.is_preempted()) {
    summary.status = "stopped";
    const StopWords words = words_of(outcome.stop);
    summary.reason = std::string(words.reason) + (summary.step > 0 ? ", saved" : ", nothing to save yet");
    summary.stopped_by = words.by;
    summary.exit_code = static_cast<int>(train::exit_code_of(outcome.stop));
    return;
  }
  summary.status = "done";
  summary.reason = outcome.stop == train::Stop::max_time     ? "train.max_time reached"
                   : outcome.stop == train::Stop::early_stop ? "stopped early: evaluations bring no gain any more"
                                                             : "all steps done";
  summary.exit_code = 0;
  if (verify && !expectation.met) {
    summary.status = "failed";
    summary.reason = "expect: missed: " + expectation.text;
    summary.exit_code = static_cast<int>(ExitCode::refused);
  }
}

monitor::Summary record_failure(monitor::Summary summary, const std::exception& failure, const RunFolder& folder) {
  summary.status = "failed";
  summary.exit_code = exit_code_of(failure);
  summary.reason = reason_of(failure);
  try {
    monitor::write_summary(folder.summary(), summary);
  } catch (const Error& second) {
    log::warning(second.what());  // the first failure is the one to report
  }
  return summary;
}

namespace {

/// Returns the results with their best values, first those of the main metric.
std::string result_text(const EndingPage& page) {
  const monitor::Summary& summary = page.summary;
  std::string result;
  const auto add = [&](const std::string& name, const monitor::Best& best) {
    const tasks::Metric* metric = tasks::find_metric(name);
    if (metric == nullptr || !name.starts_with("val/")) return;
    result += (result.empty() ? "" : "  ") + name + " " + significant(summary.metrics.at(name)) + metric->unit +
              " (best " + significant(best.value) + metric->unit + " at step " + grouped(best.step) + ")";
  };
  if (const auto main = summary.best.find(page.main_metric); main != summary.best.end()) add(main->first, main->second);
  for (const auto& [name, best] : summary.best) {
    const tasks::Metric* metric = tasks::find_metric(name);
    if (name != page.main_metric && metric != nullptr && metric->use != tasks::Metric::Use::detail) add(name, best);
  }
  if (result.empty() && summary.metrics.contains("train/loss"))
    result = "train/loss " + significant(summary.metrics.at("train/loss"));
  if (page.expectation.exists)
    result += "  expect: " + std::string(page.expectation.met ? "pass" : "MISSED") + " (" + page.expectation.text + ")";
  return result;
}

void print_next(monitor::Console& console, const EndingPage& page) {
  const monitor::Summary& summary = page.summary;
  const bool is_spent = summary.stopped_by == "limits.max_cost";
  if (summary.status == "stopped" && (summary.step > 0 || is_spent)) {
    const std::string where = "goes on from step " + grouped(summary.step) +
                              (summary.stopped_by == "limits.idle" ? "; see first why the GPUs had no work" : "");
    if (!page.go_on.empty()) return console.command("next", page.go_on, where);
    console.line("next", page.same + " " + where);
  } else if (summary.first_step_seconds == 0 && summary.status == "done") {
    console.line("next", "nothing was left to train: " + page.longer + " to go on, or --new to start over");
  } else if (summary.status == "done" && !page.use.empty()) {
    console.command("next", page.use);
  }
}

}  // namespace

void print_ending(monitor::Console& console, const EndingPage& page) {
  const monitor::Summary& summary = page.summary;
  const std::string steps = page.plan.is_time_limited()
                                ? counted(summary.step, "step")
                                : grouped(summary.step) + "/" + counted(page.plan.total_steps, "step");
  console.line(summary.status == "done" ? "done" : "end", steps + "  " + summary.reason + "  exit " +
                                                              std::to_string(summary.exit_code) + "  wall " +
                                                              monitor::duration(summary.wall_seconds));
  if (const std::string result = result_text(page); !result.empty()) console.line("result", result);
  if (summary.first_step_seconds > 0) console.line("speed", speed_text(summary));
  if (page.cost) console.line("cost", page.cost->text());
  print_next(console, page);
  const bool has_adapter = std::filesystem::exists(page.folder.adapter());
  const bool has_curve = std::filesystem::exists(page.folder.metrics());
  console.line("files", (has_adapter ? (page.folder.adapter() / "").string() : page.folder.weights().string()) + "  " +
                            (has_curve ? page.folder.metrics().filename().string() + "  report.html  " : "") +
                            page.folder.summary().filename().string() + "  " +
                            page.folder.checkpoints().filename().string() + "/");
}

}  // namespace gputrain::app
