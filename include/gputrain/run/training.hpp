// One attempt of a run: resumes, trains, and records how it ended.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "gputrain/cloud/notice.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/resume/checkpointing.hpp"
#include "gputrain/resume/record.hpp"
#include "gputrain/run/ending.hpp"
#include "gputrain/run/kernel_status.hpp"
#include "gputrain/run/live.hpp"
#include "gputrain/run/run_request.hpp"
#include "gputrain/run/samples.hpp"
#include "gputrain/setup/text_files.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/hooks.hpp"
#include "gputrain/train/profile_hook.hpp"
#include "gputrain/train/replica_hook.hpp"

namespace gputrain::app {

class TrainingLoop;

class Training {
 public:
  /// All arguments must outlive this object. Every rank must call.
  Training(const RunRequest& request, const Job& job, TrainingSetup& setup, monitor::Console& console,
           KernelStatus& kernels, const TakenRunFolder& taken);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  ~Training() { live_.end_alerts(); }

  /// Restores the newest good checkpoint, or starts at step 0. Truncates the metrics and logs there, writes the attempt
  /// to the ledger, and prints the start page. Call once, before run(). Every rank must call.
  void resume_run();

  /// Trains to the end and returns the exit code. Records an error in summary.json and rethrows it.
  int run();

 private:
  void watch_notices();
  void record_attempt(const DataIdentity& identity);
  std::string resume();
  monitor::Summary train();
  train::Outcome train_to_end(TrainingLoop& loop, const std::vector<train::Hook*>& hooks,
                              const train::NonFiniteGuard& nonfinite_guard);
  monitor::Summary close(train::Outcome outcome);
  std::string present_work() const;
  void record_end(const std::exception& failure);
  void note_reached();
  void record_forced_end(const Error& failure);
  /// Handles the results of background saves. Called after every step.
  void look_at_saves();
  train::EvalHook::Parts eval_parts(TrainingLoop& loop);
  void tell_evaluation(const nlohmann::ordered_json& details);
  train::ReplicaHook::Parts replica_parts();
  train::SaveHook::Parts save_parts(std::function<void(const train::Progress&, train::SaveMode)> save);
  train::NonFiniteGuard::Parts guard_parts(std::function<bool()> others_due);
  train::ControlHook::Parts control_parts(train::ProfileHook& profile);
  train::ProfileHook::Parts profile_parts();
  monitor::Metrics more_metrics(train::MeterHook& meter);
  void finish_mirror();
  void truncate_later_history();
  train::Stop own_stop();
  train::Stop planned_end() const;
  bool is_finished() const;
  bool is_leaving();
  std::string notice_text() const;
  std::string rate_text() const;
  void roll_back(const std::string& finding);
  train::Stop test();
  bool samples_at_end(const monitor::Summary& summary) const;
  std::string what_lasts_longer() const;
  void write_merged();
  void tell_end(const monitor::Summary& summary, const Expectation& expectation);
  std::optional<train::Spending> cost() const;
  double seconds_left() const;
  monitor::Summary summary_now() const;
  void finish(const monitor::Summary& summary, const Expectation& expectation, const checkpoint::NamedTensors& adapter);

  const RunRequest& request_;
  const Job& job_;
  const JobSpec& spec_;
  TrainingSetup& setup_;
  monitor::Console& console_;
  KernelStatus& kernels_;
  RunFolder folder_;
  const RunLock& lock_;  // lock of the run folder, on rank 0
  TextFiles text_files_;
  train::Stopwatch since_lock_check_;
  train::Progress progress_;
  int64_t first_step_ = 0;      // step at which this attempt starts
  double earlier_seconds_ = 0;  // wall time of earlier attempts
  Live live_;
  monitor::Recorder recorder_;
  train::Reporting reporting_;
  std::optional<Samples> samples_;
  train::LogHook log_;
  monitor::Ledger ledger_;
  train::SavePace pace_;  // chooses the save interval if checkpoint.interval is auto
  Checkpointing checkpointing_;
  train::SaveRequests save_requests_;
  std::unique_ptr<cloud::NoticeWatcher> notices_;  // on one rank per machine
  bool notice_told_ = false, way_made_ = false;
  bool is_testing_ = false;
  train::Stop stop_ = train::Stop::none;  // why training has ended

  struct Reached {  // state after the newest step
    monitor::Summary summary;
    train::Progress progress;
  };
  std::mutex end_mutex_;  // only one thread records the end
  Reached reached_;
};

}  // namespace gputrain::app
