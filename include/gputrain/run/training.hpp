// A run under way: resumes, trains, and ends well or badly, with everything written down.
#pragma once

#include <exception>
#include <memory>
#include <mutex>

#include "gputrain/cloud/notice.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/resume/checkpointing.hpp"
#include "gputrain/run/ending.hpp"
#include "gputrain/setup/assembly.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::app {

class Training {
 public:
  /// Everything given outlives the training. Every rank must call.
  Training(const RunRequest& request, const Job& job, Assembly& assembly, monitor::Console& console,
           const TakenRunFolder& taken);

  /// Takes up the newest good checkpoint, or begins; cuts the curve and the logs there, writes the attempt into the
  /// ledger, and prints the start page. Call it once, before run(). Every rank must call.
  void resume_run();

  /// From where the run stands to its end; returns the exit code. An error is recorded in summary.json and passed on.
  int run();

 private:
  void watch_notices();
  void record_attempt();
  std::string resume();
  monitor::Summary train();
  std::string present_work() const;
  void record_end(const std::exception& failure);
  void note_reached();
  void record_forced_end(const Error& failure);
  /// Called after every step.
  void look_at_saves();
  void finish_mirror();
  void leave_later_steps();
  train::Stop own_stop();
  bool is_leaving();
  std::string notice_text() const;
  void roll_back(const std::string& finding);
  train::Stop test();
  void finish(const monitor::Summary& summary, const Expectation& expectation);

  const RunRequest& request_;
  const Job& job_;
  const JobSpec& spec_;
  Assembly& assembly_;
  monitor::Console& console_;
  RunFolder folder_;
  const RunLock& lock_;  // of the folder, on rank 0
  train::Stopwatch since_lock_check_;
  train::Progress progress_;
  int64_t first_step_ = 0;  // of this attempt, which goes on from it
  monitor::Recorder recorder_;
  train::Reporting reporting_;
  train::LogHook log_;
  monitor::Ledger ledger_;
  train::SavePace pace_;  // of saves; used where checkpoint.interval is auto
  Checkpointing checkpointing_;
  train::SaveRequests save_requests_;
  std::unique_ptr<cloud::NoticeWatcher> notices_;  // one per machine
  bool notice_told_ = false, way_made_ = false;
  train::Stop stop_ = train::Stop::none;  // why training has ended

  struct Reached {  // by the newest step
    monitor::Summary summary;
    train::Progress progress;
  };
  std::mutex end_mutex_;  // the end is written down by one thread
  Reached reached_;
};

}  // namespace gputrain::app
