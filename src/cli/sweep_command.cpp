// `gputrain sweep`: runs trials of a job, each a run of its own, and says which settings were best.
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
#include <thread>
#include <utility>

#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/process.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/inspect/text_table.hpp"
#include "gputrain/job/commands.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/job/run_lock.hpp"
#include "gputrain/launch/child.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/sweep/trials.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/preemption.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

/// What is known of a trial. `ended` is of an asha trial that was not among the best.
struct Trial {
  TrialSettings settings;
  std::string state = "waiting";  // done, ended, failed
  std::optional<double> value;
  int64_t evaluations = 0;
  std::string why = {};  // it failed
  int exit_code = 0;

  bool is_over() const { return state != "waiting"; }
};

std::string text_of(const TrialSettings& settings) {
  std::string text;
  for (const auto& [key, value] : settings) text += (text.empty() ? "" : "  ") + key + " " + value;
  return text;
}

ordered_json json_of(const Trial& trial, int64_t number) {
  ordered_json settings = ordered_json::object();
  for (const auto& [key, value] : trial.settings) settings[key] = value;
  ordered_json all{{"trial", number}, {"settings", std::move(settings)}, {"state", trial.state}};
  all["value"] = trial.value ? ordered_json(*trial.value) : ordered_json();
  all["evaluations"] = trial.evaluations;
  if (trial.state == "failed") all.update({{"exit_code", trial.exit_code}, {"why", trial.why}});
  return all;
}

class Sweep {
 public:
  Sweep(const SweepRequest& request, const Job& job)
      : request_(request),
        spec_(*job.spec().sweep),
        folder_(job.output_dir),
        job_(job.spec_hash),
        on_cpu_(job.spec().device == "cpu" || device::gpu_count() == 0),
        console_(monitor::Console::detect(!request.json)),
        rungs_(spec_, tasks::smaller_is_better(spec_.metric)) {
    for (TrialSettings& settings : trial_settings(spec_, static_cast<uint64_t>(job.spec().seed)))
      trials_.push_back({.settings = std::move(settings)});
    if (!job.spec().data.val)
      throw job.loaded.error("data.val", "trials are compared by evaluations, and there are none",
                             "data.val: {split: 10%}");
    check_settings();
    take_folder();
    restore();
    const int64_t gpus = on_cpu_ ? 1 : std::max(1, device::gpu_count());
    slots_.resize(static_cast<size_t>(std::min(spec_.parallel.value.value_or(gpus), std::ssize(trials_))));
    console_.show(
        "sweep", fmt::format("{} of {}, {} at a time, for the {} {}  {}", counted(std::ssize(trials_), "trial"),
                             spec_.method, slots_.size(), tasks::smaller_is_better(spec_.metric) ? "lowest" : "highest",
                             spec_.metric, folder_.string()));
  }

  int run() {
    train::note_signals();
    while (true) {
      const train::Stop stop = train::noted_stop();
      if (stop != train::Stop::none) return end_early(static_cast<int>(train::exit_code_of(stop)));
      if (stopped_with_ != 0) return end_early(stopped_with_);
      for (size_t slot = 0; slot < slots_.size(); ++slot) {
        if (slots_[slot]) look_at(slots_[slot]);
        if (!slots_[slot]) start_next(slot);
      }
      if (std::ranges::none_of(slots_, [](const auto& running) { return running.has_value(); })) return end();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

 private:
  struct Running {
    size_t trial;
    launch::Child child;
    bool was_signalled = false;
  };

  std::string name_of(size_t trial) const { return fmt::format("trial-{:03}", trial + 1); }
  fs::path run_of(size_t trial) const { return folder_ / name_of(trial); }
  fs::path log_of(size_t trial) const { return folder_ / (name_of(trial) + ".log"); }
  fs::path state_file() const { return folder_ / "sweep.json"; }

  std::vector<std::string> settings_of_run(size_t trial) const {
    std::vector<std::string> set = request_.job.set;
    set.emplace_back("sweep=null");
    for (const auto& [key, value] : trials_[trial].settings) set.push_back(key + "=" + value);
    return set;
  }

  /// A mistake in the last trial must not show after a night of others.
  void check_settings() const {
    for (size_t trial = 0; trial < trials_.size(); ++trial)
      load_job({.file = request_.job.file, .set = settings_of_run(trial), .output_dir = run_of(trial).string()});
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

  void restore() {
    std::ifstream file(state_file());
    if (!file) return;
    const auto state = ordered_json::parse(file, nullptr, false);
    try {
      if (state.at("metric") != spec_.metric || state.at("job") != job_)
        throw Error(ExitCode::usage, {.what = "the folder has the sweep of another job, or by another metric",
                                      .where = state_file().string(),
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
      throw Error(ExitCode::data,
                  {.what = "cannot be read", .where = state_file().string(), .hint = "another --output-dir"});
    }
  }

  void restore(Trial& trial, const ordered_json& known) const {
    TrialSettings settings;
    for (const auto& [key, value] : known.at("settings").items()) settings.emplace_back(key, value.get<std::string>());
    if (settings != trial.settings)
      throw Error(ExitCode::usage, {.what = "the folder has a sweep of other trials: " + text_of(settings),
                                    .where = state_file().string(),
                                    .hint = "another --output-dir"});
    constexpr int kDiverged = static_cast<int>(ExitCode::refused);
    if (known.at("state") == "failed" && known.at("exit_code") != kDiverged) return;  // tried again
    trial.state = known.at("state");
    if (!known.at("value").is_null()) trial.value = known["value"].get<double>();
    trial.evaluations = known.at("evaluations");
    trial.why = known.value("why", "");
    trial.exit_code = known.value("exit_code", 0);
  }

  ordered_json state() const {
    ordered_json all{
        {"metric", spec_.metric}, {"job", job_}, {"trials", ordered_json::array()}, {"rungs", ordered_json::array()}};
    for (size_t trial = 0; trial < trials_.size(); ++trial)
      all["trials"].push_back(json_of(trials_[trial], static_cast<int64_t>(trial) + 1));
    for (const auto& rung : rungs_.reached()) {
      auto reached = ordered_json::array();
      for (const auto& [trial, value] : rung) reached.push_back({trial, value});
      all["rungs"].push_back(std::move(reached));
    }
    return all;
  }

  void save() const { write_file_atomically(state_file(), state().dump(2) + "\n", ExitCode::environment); }

  void start_next(size_t slot) {
    const auto is_free = [&](size_t trial) {
      return !trials_[trial].is_over() &&
             std::ranges::none_of(slots_, [&](const auto& one) { return one && one->trial == trial; });
    };
    size_t trial = 0;
    while (trial < trials_.size() && !is_free(trial)) ++trial;
    if (trial == trials_.size()) return;
    std::vector<std::string> argv{
        "/bin/sh",         "-c",           "exec \"$@\" >>\"$0\" 2>&1", log_of(trial).string(), own_program(), "run",
        request_.job.file, "--output-dir", run_of(trial).string()};
    for (const std::string& set : settings_of_run(trial)) argv.insert(argv.end(), {"--set", set});
    slots_[slot].emplace(Running{
        .trial = trial, .child = launch::Child({.argv = std::move(argv), .environment = environment_of(slot)})});
    ::close(slots_[slot]->child.take_output());
    ::close(slots_[slot]->child.take_errors());
    console_.show("trial", fmt::format("{}/{}  {}", trial + 1, trials_.size(), text_of(trials_[trial].settings)));
  }

  /// Each trial has a GPU of its own, or its share of the cores.
  std::vector<std::string> environment_of(size_t slot) const {
    std::map<std::string, std::string> variables;
    for (char** one = environ; *one != nullptr; ++one) {
      const std::string text = *one;
      variables[text.substr(0, text.find('='))] = text.substr(std::min(text.size(), text.find('=') + 1));
    }
    if (on_cpu_ && slots_.size() > 1) {
      const int64_t share = device::cpus_of_rank(static_cast<int>(slots_.size()));
      variables.try_emplace("OMP_NUM_THREADS", std::to_string(std::max<int64_t>(1, share)));
    } else if (!on_cpu_) {
      variables["CUDA_VISIBLE_DEVICES"] = gpu_of(slot, variables["CUDA_VISIBLE_DEVICES"]);
    }
    std::vector<std::string> all;
    for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
    return all;
  }

  static std::string gpu_of(size_t slot, const std::string& visible) {
    std::vector<std::string> names;
    for (size_t begin = 0; begin < visible.size();) {
      const size_t end = std::min(visible.find(',', begin), visible.size());
      names.push_back(visible.substr(begin, end - begin));
      begin = end + 1;
    }
    for (int gpu = 0; visible.empty() && gpu < device::gpu_count(); ++gpu) names.push_back(std::to_string(gpu));
    return names.empty() ? "" : names[slot % names.size()];
  }

  /// The values of a trial's evaluations, in the order of their steps.
  std::vector<double> values_of(size_t trial) const {
    std::map<int64_t, double> by_step;
    std::ifstream file(RunFolder{run_of(trial)}.metrics());
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line, nullptr, false);
      if (!record.is_object() || !record.contains(spec_.metric)) continue;
      const auto& value = record[spec_.metric];
      by_step[record.value("step", int64_t{0})] = value.is_number() ? value.get<double>() : std::nan("");
    }
    std::vector<double> values;
    for (const auto& [step, value] : by_step) values.push_back(value);
    return values;
  }

  /// Judges what the trial has reached. A trial that ended before this looked is judged as one that still runs.
  void judge(size_t trial) {
    if (trials_[trial].is_over() || spec_.method != "asha") return;
    std::error_code ignored;
    const uintmax_t size = fs::file_size(RunFolder{run_of(trial)}.metrics(), ignored);
    if (ignored || std::exchange(looked_at_[trial], size) == size) return;
    std::vector<double> values = values_of(trial);
    const size_t known = reached_count();
    const auto end = rungs_.ends_after(static_cast<int64_t>(trial), values);
    if (end) {
      values.resize(static_cast<size_t>(*end));
      conclude(trial, "ended", values);
    } else if (reached_count() != known) {
      save();
    }
  }

  size_t reached_count() const {
    size_t count = 0;
    for (const auto& rung : rungs_.reached()) count += rung.size();
    return count;
  }

  void conclude(size_t trial, const std::string& state, const std::vector<double>& values,
                const std::string& why = {}) {
    Trial& one = trials_[trial];
    one.state = state;
    one.value = rungs_.best(values);
    one.evaluations = std::ssize(values);
    one.why = why;
    save();
    std::string text = fmt::format("{}/{}", trial + 1, trials_.size());
    if (state == "ended") text += "  after " + counted(one.evaluations, "evaluation");
    if (one.value) text += "  " + spec_.metric + " " + monitor::significant(*one.value);
    console_.show(state, text + (why.empty() ? "" : "  " + why));
  }

  void look_at(std::optional<Running>& running) {
    const size_t trial = running->trial;
    std::optional<launch::ProcessStatus> end;
    while (const auto status = running->child.look()) {
      if (status->is_end()) end = status;
    }
    judge(trial);
    if (!end) {
      if (trials_[trial].is_over() && !std::exchange(running->was_signalled, true)) running->child.signal(SIGTERM);
      return;
    }
    running.reset();
    if (trials_[trial].is_over()) return;
    if (end->went_well()) return finish(trial);
    if (const int code = exit_code_of(*end); is_stop(code)) stopped_with_ = code;
    if (is_ending_ || stopped_with_ != 0) return;  // the trial goes on when the sweep does
    fail(trial, *end);
  }

  static int exit_code_of(const launch::ProcessStatus& end) {
    return end.kind == launch::ProcessStatus::Kind::exited ? end.number : 128 + end.number;
  }

  /// A run that was asked to stop, or whose machine is taken away, goes on with the same command.
  static bool is_stop(int exit_code) {
    using train::Stop;
    return std::ranges::any_of(std::array{Stop::max_duration, Stop::notice, Stop::restart, Stop::ordered, Stop::spent,
                                          Stop::interrupted, Stop::terminated},
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
    conclude(trial, "done", values);
  }

  void fail(size_t trial, const launch::ProcessStatus& end) {
    std::ifstream file(RunFolder{run_of(trial)}.summary());
    const auto summary = nlohmann::json::parse(file, nullptr, false);
    const bool is_exit = end.kind == launch::ProcessStatus::Kind::exited;
    std::string why = is_exit ? "exit " + std::to_string(end.number) : launch::signal_text(end.number);
    if (summary.is_object() && is_exit) why += ": " + summary.value("reason", "");
    trials_[trial].exit_code = exit_code_of(end);
    conclude(trial, "failed", {}, why + "  " + log_of(trial).string());
    const bool has_success =
        std::ranges::any_of(trials_, [](const Trial& one) { return one.state == "done" || one.state == "ended"; });
    const bool is_mistake =
        is_exit && (end.number == static_cast<int>(ExitCode::usage) || end.number == static_cast<int>(ExitCode::data));
    if (!is_mistake || has_success) return;
    end_children();
    throw Error(static_cast<ExitCode>(end.number),
                {.what = "the trial cannot run: " + last_lines(log_of(trial)), .where = log_of(trial).string()});
  }

  static std::string last_lines(const fs::path& log) {
    std::ifstream file(log);
    std::string line, text;
    while (std::getline(file, line))
      if (line.starts_with("error: ")) text = line.substr(7);
    return text.empty() ? "see its log" : text;
  }

  /// Lets the trials save and end.
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
    std::vector<size_t> order;
    for (size_t trial = 0; trial < trials_.size(); ++trial) order.push_back(trial);
    std::ranges::stable_sort(order, [&](size_t one, size_t other) {
      const auto &a = trials_[one].value, &b = trials_[other].value;
      return a && b ? rungs_.is_better(*a, *b) : a.has_value() && !b.has_value();
    });
    if (request_.json) {
      std::printf("%s\n", state().dump(2).c_str());
    } else {
      std::printf("\n%s\n", table(order).c_str());
    }
    if (!trials_[order.front()].value)
      throw Error(
          ExitCode::refused,
          {.what = "no trial has a value of " + spec_.metric,
           .where = folder_.string(),
           .hint = "the trials' logs say why; the same command tries those again that failed, but did not diverge"});
    write_best(order.front());
    return 0;
  }

  std::string table(const std::vector<size_t>& order) const {
    TextTable table("rrlr" + std::string(spec_.parameters.size(), 'l'));
    std::vector<std::string> head{"trial", spec_.metric, "state", "evaluations"};
    for (const auto& [key, value] : trials_.front().settings) head.push_back(key);
    table.add(head);
    for (const size_t trial : order) {
      const Trial& one = trials_[trial];
      std::vector<std::string> cells{std::to_string(trial + 1), one.value ? monitor::significant(*one.value) : "-",
                                     one.state, std::to_string(one.evaluations)};
      for (const auto& [key, value] : one.settings) cells.push_back(value);
      table.add(std::move(cells));
    }
    return table.text();
  }

  void write_best(size_t trial) {
    std::ifstream resolved(RunFolder{run_of(trial)}.resolved());
    if (!resolved)
      throw Error(ExitCode::environment,
                  {.what = "the folder of the best trial is gone", .where = run_of(trial).string()});
    std::string text = fmt::format("# The best of {}: {}, {} {}\n", counted(std::ssize(trials_), "trial"),
                                   name_of(trial), spec_.metric, monitor::significant(*trials_[trial].value));
    for (std::string line; std::getline(resolved, line);)
      if (!line.starts_with("output_dir:")) text += line + "\n";
    const fs::path best = folder_ / "best.yaml";
    write_file_atomically(best, text, ExitCode::environment);
    console_.show("best",
                  fmt::format("{}/{}  {}  {} {}  {}  {}", trial + 1, trials_.size(), text_of(trials_[trial].settings),
                              spec_.metric, monitor::significant(*trials_[trial].value), (run_of(trial) / "").string(),
                              best.string()));
  }

  SweepRequest request_;
  SweepSpec spec_;
  fs::path folder_;
  std::string job_;  // hash of the settings that change results
  bool on_cpu_;
  monitor::Console console_;
  Rungs rungs_;
  std::vector<Trial> trials_;
  std::map<size_t, uintmax_t> looked_at_;  // by trial: the size of its metrics.jsonl
  std::vector<std::optional<Running>> slots_;
  RunLock lock_;
  bool is_ending_ = false;
  int stopped_with_ = 0;  // the exit code of a trial that was stopped from outside
};

}  // namespace

int sweep_command(const SweepRequest& request) {
  const Job job = load_job(request.job);
  if (!job.spec().sweep)
    throw Error(ExitCode::usage, {.what = "the job has no sweep",
                                  .where = request.job.file,
                                  .hint = "sweep: {method: random, trials: 12, parameters: [{key: optimizer.lr, min: "
                                          "0.001, max: 0.1, scale: log}]}"});
  train::watch_signals();
  return Sweep(request, job).run();
}

}  // namespace gputrain::app
