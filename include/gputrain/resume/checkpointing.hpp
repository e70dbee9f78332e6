// Saving and resuming a run: the folder, the checkpoint to begin with, and the handling of saves that fail.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/checkpoint/background_writer.hpp"
#include "gputrain/checkpoint/checkpoint.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/ledger.hpp"
#include "gputrain/resume/resume_point.hpp"
#include "gputrain/resume/run_mirror.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/setup/training_state.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::app {

/// Returns the name of the metric that counts most: checkpoint.metric, or the task's.
std::string main_metric_of(const JobSpec& spec, const tasks::Task& task);
/// Returns the metric that makes an evaluation the best, "val/loss"; empty: there is none. Throws Error(usage) for one
/// that is not measured.
std::string watched_metric_of(const JobSpec& spec, const JobDatasets& datasets);
/// Returns the same if the best checkpoints are kept, and else an empty name.
std::string best_metric_of(const JobSpec& spec, const JobDatasets& datasets);

checkpoint::Retention retention_of(const train::CheckpointSpec& spec, const train::Plan& plan,
                                   const std::string& best_metric);

class Checkpointing {
 public:
  struct Parts {
    const Job& job;
    TrainingSetup& setup;
    train::LogHook& log;  // its state belongs to the checkpoint
    monitor::Console& console;
    monitor::Ledger& ledger;
    train::SavePace& pace;  // learns what saves cost
    RunFolder folder;
  };

  explicit Checkpointing(Parts parts);

  /// Follows `checkpoint.resume`: restores everything from the checkpoint it names, if any, and returns what to print.
  /// `progress` is that of the attempt that saved it; its attempts are 0 if there is none. Throws Error(checkpoint)
  /// when there must be one and is not, Error(usage) when the job has changed in a way that does not allow going on.
  /// Every rank must call.
  std::string resume(train::Progress& progress, bool accept_changes);
  /// Returns the branch that the run saves in.
  int64_t branch() const noexcept { return point_.branch; }
  /// Returns the changes of the job since the checkpoint that resume() restored and that the user has accepted.
  const std::vector<config::Difference>& accepted() const noexcept { return accepted_; }
  /// Returns the checkpoint that resume() began the branch with; empty: it went on in the branch.
  const std::string& from() const noexcept { return from_; }

  /// Restores everything from the newest good checkpoint, but goes on from the step of `progress`; returns the
  /// checkpoint's step. Throws Error(refused), with `reason`, when there is none yet. Every rank must call.
  int64_t roll_back(train::Progress& progress, const std::string& reason);

  /// Saves after `progress.step` steps. A save in the background that fails gives a warning and is counted;
  /// Error(checkpoint) ends training when checkpoint.max_save_failures have failed in a row, or when a durable one
  /// fails. Every rank must call.
  void save(const train::Progress& progress, train::SaveMode mode);
  /// Ends the copy that the save in the background makes of weights and the optimizer's state. Call before they change.
  void finish_copy() { writer_.finish_copy(); }
  /// Tells how saves in the background have ended, if any has.
  void note_results();

  /// Waits for the save in the background. Returns whether the last save ended well. Every rank must call.
  bool settle();

  /// Returns whether resume() has restored a checkpoint of the branch in the run's own folder, or none. If not, the run
  /// has to save it there before the first step.
  bool is_in_place() const noexcept { return is_in_place_; }
  /// Returns the global batch of the run whose checkpoint resume() took by path, if it is another one than this run's.
  const std::optional<int64_t>& batch_elsewhere() const noexcept { return batch_elsewhere_; }
  /// Waits until the mirror has copied everything, at most as long as `seconds_left` says, again and again.
  void finish_mirror(const std::function<double()>& seconds_left);

  /// Returns the metric that makes a checkpoint the best; empty: the best is not kept.
  const std::string& best_metric() const noexcept { return best_metric_; }
  /// Returns the time to write the last checkpoint; 0: not known yet.
  double save_seconds() const noexcept { return save_seconds_; }
  /// Returns the time in which resume() read its checkpoint; 0: there was none.
  double restore_seconds() const noexcept { return restore_seconds_; }

 private:
  using Read = checkpoint::Read;
  bool may_resume() const;
  std::optional<checkpoint::Checkpoint> choose(const Read& read);
  std::optional<checkpoint::Checkpoint> newest(const Read& read);
  void note(const checkpoint::BackgroundWriter::Result& result);
  bool fails_anywhere(bool failed);
  bool is_rank_zero() const noexcept { return parts_.setup.context.rank() == 0; }
  bool writes() const noexcept { return state_.is_shared_out() || is_rank_zero(); }
  bool prepare(const checkpoint::Snapshot& live);
  void write(const checkpoint::Snapshot& live, train::SaveMode mode);
  double wait_for_the_save_before();
  void tell_of_waiting(double seconds);
  void tell_other_versions(const checkpoint::Checkpoint& from) const;
  bool forget_other_evaluations(const checkpoint::Checkpoint& from, train::Progress& progress) const;
  void tell_of_other_evaluations() const;

  Parts parts_;
  TrainingState state_;
  std::string best_metric_;
  ResumePoint point_;
  checkpoint::CheckpointStore store_;
  checkpoint::BackgroundWriter writer_;
  std::optional<RunMirror> mirror_;
  std::string from_;
  std::vector<config::Difference> accepted_;
  bool is_in_place_ = true;
  std::optional<int64_t> batch_elsewhere_;
  struct Begun {
    data::SampleUsage usage;
    double waited_seconds;  // for the save before it
  };
  std::map<int64_t, Begun> begun_;  // keys: steps of the newest save and of those whose end is not known
  double waited_seconds_ = 0;       // waits of all saves at intervals
  bool has_told_of_waiting_ = false;
  train::Stopwatch since_start_;
  int64_t announced_step_ = -1;
  int64_t failures_ = 0;  // in a row
  std::string last_failure_;
  double save_seconds_ = 0, verify_seconds_ = 0;  // times of the last save
  double restore_seconds_ = 0;
};

}  // namespace gputrain::app
