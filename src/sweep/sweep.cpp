#include "gputrain/sweep/sweep.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "environment.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/process.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/job/run_lock.hpp"
#include "gputrain/launch/child.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/setup/compatibility.hpp"
#include "gputrain/sweep/record.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/preemption.hpp"
#include "page.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

/// Quotes a text as a value of --set.
std::string as_value(const std::string& text) {
  std::string value = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  for (size_t at = 0; (at = value.find("${", at)) != std::string::npos; at += 3) value.insert(at, "$");
  return value;
}

/// Returns the job's keys, with their values, that name something outside the run folder which only one run may use.
std::map<std::string, std::string> keys_of_one_run(const Job& job) {
  const JobSpec& spec = job.spec();
  std::map<std::string, std::string> keys{{"name", job.name}};
  if (spec.checkpoint.mirror) keys["checkpoint.mirror"] = *spec.checkpoint.mirror;
  if (spec.log.mlflow && spec.log.mlflow->run_name) keys["log.mlflow.run_name"] = *spec.log.mlflow->run_name;
  if (spec.log.wandb && spec.log.wandb->name) keys["log.wandb.name"] = *spec.log.wandb->name;
  return keys;
}

class Sweep {
 public:
  Sweep(const JobRequest& request, const Job& job, bool json)
      : request_(request),
        json_(json),
        spec_(*job.spec().sweep),
        shared_(keys_of_one_run(job)),
        port_(job.spec().log.metrics_port.value_or(0)),
        folder_(job.output_dir),
        on_cpu_(job.spec().device == "cpu" || device::gpu_count() == 0),
        console_(monitor::Console::detect(!json)),
        record_(spec_, static_cast<uint64_t>(job.spec().seed), job.spec_hash, folder_ / "sweep.json"),
        page_(job, folder_) {
    if (!job.spec().data.val)
      throw job.loaded.error("data.val", "trials are compared by evaluations, and there are none",
                             "data.val: {split: 10%}");
    check_values(request_, job);
    check_settings();
    take_folder();
    record_.restore();
    record_.save();  // `gputrain top` knows the sweep from its start
    const int64_t gpus = on_cpu_ ? 1 : std::max(1, device::gpu_count());
    slots_.resize(static_cast<size_t>(std::min(spec_.parallel.value.value_or(gpus), std::ssize(trials()))));
    if (port_ > 0 && port_ + std::ssize(slots_) - 1 > 65535)
      throw job.loaded.error("log.metrics_port", "trials beside each other need a port each, from this one on",
                             "a lower one, or 0 for free ones");
    console_.show(
        "sweep", fmt::format("{} of {}, {} at a time, for the {} {}  {}", counted(std::ssize(trials()), "trial"),
                             spec_.method, slots_.size(), tasks::smaller_is_better(spec_.metric) ? "lowest" : "highest",
                             spec_.metric, folder_.string()));
    console_.show("page", page_.file().string() + "  opens in a browser; the sweep writes it anew while it goes on");
  }

  int run() {
    train::note_signals();
    try {
      const int code = run_trials();
      page_.write(state(code == 0 ? "done" : "stopped"));
      return code;
    } catch (const Error&) {
      page_.write(state("failed"));
      throw;
    }
  }

 private:
  int run_trials() {
    while (true) {
      const train::Stop stop = train::noted_stop();
      if (stop != train::Stop::none) return end_early(static_cast<int>(train::exit_code_of(stop)));
      if (stopped_with_ != 0) return end_early(stopped_with_);
      for (size_t slot = 0; slot < slots_.size(); ++slot) {
        if (slots_[slot]) look_at(slots_[slot]);
        if (!slots_[slot]) start_next(slot);
      }
      if (std::ranges::none_of(slots_, [](const auto& running) { return running.has_value(); })) return end();
      page_.update(state("running"));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  SweepState state(const std::string& name) const {
    SweepState state{.record = record_, .state = name};
    for (const auto& running : slots_)
      if (running) state.running.push_back(running->trial);
    return state;
  }

  const std::vector<Trial>& trials() const { return record_.trials(); }

  struct Running {
    size_t trial;
    launch::Child child;
    bool was_signalled = false;
  };

  std::string name_of(size_t trial) const { return run_of(trial).filename().string(); }
  fs::path run_of(size_t trial) const { return run_of_trial(folder_, trial); }
  fs::path log_of(size_t trial) const { return folder_ / (name_of(trial) + ".log"); }

  std::vector<std::string> settings_of_run(size_t trial) const {
    std::vector<std::string> set = request_.set;
    set.emplace_back("sweep=null");
    for (const auto& [key, value] : shared_)
      set.push_back(key + "=" + as_value(value + (key == "checkpoint.mirror" ? "/" : "-") + name_of(trial)));
    for (const auto& [key, value] : trials()[trial].settings) set.push_back(key + "=" + value);
    return set;
  }

  /// Checks the settings of all trials, so that a mistake in the last one does not show after a night of others.
  void check_settings() const {
    for (size_t trial = 0; trial < trials().size(); ++trial)
      check_compatibility(
          load_job({.file = request_.file, .set = settings_of_run(trial), .output_dir = run_of(trial).string()}));
  }

  void take_folder() {
    if (exists(RunFolder{folder_}.resolved()))
      throw Error(ExitCode::usage, {.what = "the folder is that of a run, not of a sweep",
                                    .where = folder_.string(),
                                    .hint = "another --output-dir"});
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) throw Error(ExitCode::environment, {.what = error.message(), .where = folder_.string()});
    lock_ = RunLock(folder_);
  }

  void start_next(size_t slot) {
    const auto is_free = [&](size_t trial) {
      return !trials()[trial].is_over() &&
             std::ranges::none_of(slots_, [&](const auto& one) { return one && one->trial == trial; });
    };
    size_t trial = 0;
    while (trial < trials().size() && !is_free(trial)) ++trial;
    if (trial == trials().size()) return;
    std::vector<std::string> argv{
        "/bin/sh",     "-c",           "exec \"$@\" >>\"$0\" 2>&1", log_of(trial).string(), own_program(), "run",
        request_.file, "--output-dir", run_of(trial).string()};
    for (const std::string& set : settings_of_run(trial)) argv.insert(argv.end(), {"--set", set});
    if (port_ > 0)
      argv.insert(argv.end(), {"--set", fmt::format("log.metrics_port={}", port_ + static_cast<int64_t>(slot))});
    slots_[slot].emplace(
        Running{.trial = trial,
                .child = launch::Child(
                    {.argv = std::move(argv), .environment = environment_of_slot(slot, slots_.size(), on_cpu_)})});
    ::close(slots_[slot]->child.take_output());
    ::close(slots_[slot]->child.take_errors());
    console_.show("trial", fmt::format("{}/{}  {}", trial + 1, trials().size(), text_of(trials()[trial].settings)));
  }

  /// Returns the values of a trial's evaluations, in the order of their steps.
  std::vector<double> values_of(size_t trial) const {
    std::map<int64_t, double> by_step;
    std::ifstream file(RunFolder{run_of(trial)}.metrics());
    for (std::string line; std::getline(file, line);) {
      const auto record = parse_json(line);
      if (!record.is_object() || !record.contains(spec_.metric)) continue;
      const auto& value = record[spec_.metric];
      by_step[record.value("step", int64_t{0})] = value.is_number() ? value.get<double>() : std::nan("");
    }
    std::vector<double> values;
    for (const auto& [step, value] : by_step) values.push_back(value);
    return values;
  }

  /// Judges the trial by its metrics. A trial that has ended since the last look is judged like a running one.
  void judge(size_t trial) {
    if (trials()[trial].is_over() || spec_.method != "asha") return;
    std::error_code ignored;
    const uintmax_t size = fs::file_size(RunFolder{run_of(trial)}.metrics(), ignored);
    if (ignored || std::exchange(looked_at_[trial], size) == size) return;
    record_.judge(trial, values_of(trial));
    if (trials()[trial].is_over()) show(trial);
  }

  void show(size_t trial) {
    const Trial& one = trials()[trial];
    std::string text = fmt::format("{}/{}", trial + 1, trials().size());
    if (one.state == "ended") text += "  after " + counted(one.evaluations, "evaluation");
    if (one.value) text += "  " + spec_.metric + " " + monitor::significant(*one.value);
    console_.show(one.state, text + (one.why.empty() ? "" : "  " + one.why));
  }

  void look_at(std::optional<Running>& running) {
    const size_t trial = running->trial;
    std::optional<launch::ProcessStatus> end;
    while (const auto status = running->child.look()) {
      if (status->is_end()) end = status;
    }
    judge(trial);
    if (!end) {
      if (trials()[trial].is_over() && !std::exchange(running->was_signalled, true)) running->child.signal(SIGTERM);
      return;
    }
    running.reset();
    if (trials()[trial].is_over()) return;
    if (end->went_well()) return finish(trial);
    if (const int code = exit_code_of(*end); is_stop(code)) stopped_with_ = code;
    if (is_ending_ || stopped_with_ != 0) return;  // the trial continues when the sweep does
    fail(trial, *end);
  }

  static int exit_code_of(const launch::ProcessStatus& end) {
    return end.kind == launch::ProcessStatus::Kind::exited ? end.number : 128 + end.number;
  }

  /// Returns whether a run was asked to stop, or its machine is taken away: it continues with the same command.
  static bool is_stop(int exit_code) {
    using train::Stop;
    return std::ranges::any_of(
        std::array{Stop::max_duration, Stop::notice, Stop::restart, Stop::ordered, Stop::interrupted, Stop::terminated},
        [&](Stop stop) { return static_cast<int>(train::exit_code_of(stop)) == exit_code; });
  }

  void finish(size_t trial) {
    const auto values = values_of(trial);
    if (values.empty()) {
      end_children();
      throw Error(ExitCode::usage, {.what = "the trial has no " + spec_.metric + " in its metrics.jsonl",
                                    .where = run_of(trial).string(),
                                    .hint = "sweep.metric: one that the task measures, and log.sinks with jsonl"});
    }
    record_.finish(trial, values);
    show(trial);
  }

  void fail(size_t trial, const launch::ProcessStatus& end) {
    const auto summary = parse_json_file(RunFolder{run_of(trial)}.summary());
    const bool is_exit = end.kind == launch::ProcessStatus::Kind::exited;
    std::string why = is_exit ? "exit " + std::to_string(end.number) : launch::signal_text(end.number);
    if (is_exit) why += ": " + (summary.is_object() ? summary.value("reason", "") : last_error_in(log_of(trial)));
    record_.fail(trial, exit_code_of(end), why + "  " + log_of(trial).string());
    show(trial);
    const bool has_success = std::ranges::any_of(trials(), &Trial::has_worked);
    const bool is_mistake =
        is_exit && (end.number == static_cast<int>(ExitCode::usage) || end.number == static_cast<int>(ExitCode::data));
    if (!is_mistake || has_success) return;
    end_children();
    throw Error(static_cast<ExitCode>(end.number),
                {.what = "the trial cannot run: " + last_error_in(log_of(trial)), .where = log_of(trial).string()});
  }

  static std::string last_error_in(const fs::path& log) {
    std::ifstream file(log);
    std::string line, text;
    while (std::getline(file, line))
      if (line.starts_with("error: ")) text = line.substr(7);
    return text.empty() ? "see its log" : text;
  }

  /// Makes the trials save and end.
  void end_children() {
    is_ending_ = true;
    for (auto& running : slots_)
      if (running) running->child.signal(SIGTERM);
    while (std::ranges::any_of(slots_, [](const auto& running) { return running.has_value(); })) {
      for (auto& running : slots_)
        if (running) look_at(running);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  int end_early(int exit_code) {
    end_children();
    console_.show("end", "stopped; the same command goes on");
    return exit_code;
  }

  int end() {
    const size_t best = record_.best_first().front();
    if (json_) {
      std::printf("%s\n", record_.to_json().dump(2).c_str());
    } else {
      std::printf("\n%s\n", record_.table().c_str());
    }
    if (!trials()[best].value)
      throw Error(
          ExitCode::refused,
          {.what = "no trial has a value of " + spec_.metric,
           .where = folder_.string(),
           .hint = "the trials' logs say why; the same command tries those again that failed, but did not diverge"});
    write_best(best);
    require_success();
    return 0;
  }

  /// Throws if most trials failed for another reason than settings with which training diverges.
  void require_success() const {
    const auto has_failed = [](const Trial& trial) {
      return trial.state == "failed" && trial.exit_code != static_cast<int>(ExitCode::refused);
    };
    const auto failed = std::ranges::count_if(trials(), has_failed);
    if (2 * failed <= std::ssize(trials())) return;
    const Trial& first = *std::ranges::find_if(trials(), has_failed);
    const bool is_known = first.exit_code > 0 && first.exit_code <= static_cast<int>(ExitCode::environment);
    throw Error(is_known ? static_cast<ExitCode>(first.exit_code) : ExitCode::environment,
                {.what = fmt::format("{} of {} trials failed; the first one: {}", failed, trials().size(), first.why),
                 .where = folder_.string(),
                 .hint = "fix the cause; the same command tries them again"});
  }

  void write_best(size_t trial) {
    const fs::path run = RunFolder{run_of(trial)}.resolved();
    if (!fs::exists(run))
      throw Error(ExitCode::environment,
                  {.what = "the folder of the best trial is gone", .where = run_of(trial).string()});
    JobRequest as_job{.file = run.string(), .output_dir = (folder_ / "best").string()};
    for (const auto& [key, value] : shared_) as_job.set.push_back(key + "=" + as_value(value));
    if (port_ > 0) as_job.set.push_back(fmt::format("log.metrics_port={}", port_));
    std::istringstream resolved(load_job(as_job).loaded.resolved_yaml());
    std::string text = fmt::format("# The best of {}: {}, {} {}\n", counted(std::ssize(trials()), "trial"),
                                   name_of(trial), spec_.metric, monitor::significant(*trials()[trial].value));
    for (std::string line; std::getline(resolved, line);) text += line + "\n";
    const fs::path best = folder_ / "best.yaml";
    write_file_atomically(best, text, ExitCode::environment);
    console_.show("best",
                  fmt::format("{}/{}  {}  {} {}  {}  {}", trial + 1, trials().size(), text_of(trials()[trial].settings),
                              spec_.metric, monitor::significant(*trials()[trial].value), (run_of(trial) / "").string(),
                              best.string()));
  }

  JobRequest request_;
  bool json_;
  SweepSpec spec_;
  std::map<std::string, std::string> shared_;  // keys with a different value for each trial, and the job's values
  int64_t port_;                               // log.metrics_port; 0: none, or a free one
  fs::path folder_;
  bool on_cpu_;
  monitor::Console console_;
  SweepRecord record_;
  SweepPage page_;
  std::map<size_t, uintmax_t> looked_at_;  // size of metrics.jsonl by trial
  std::vector<std::optional<Running>> slots_;
  RunLock lock_;
  bool is_ending_ = false;
  int stopped_with_ = 0;  // exit code of a trial that was stopped from outside
};

}  // namespace

int run_sweep(const JobRequest& request, const Job& job, bool json) {
  if (!job.spec().sweep)
    throw Error(ExitCode::usage, {.what = "the job has no sweep",
                                  .where = request.file,
                                  .hint = "sweep: {method: random, trials: 12, parameters: [{key: optimizer.lr, min: "
                                          "0.001, max: 0.1, scale: log}]}"});
  train::watch_signals();
  return Sweep(request, job, json).run();
}

}  // namespace gputrain::app
