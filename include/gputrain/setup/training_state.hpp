// Complete training state: gathered for a checkpoint and restored from one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gputrain/checkpoint/checkpoint.hpp"
#include "gputrain/checkpoint/store.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/hook.hpp"

namespace gputrain::app {

/// Returns the part of the optimizer state that a rank owns and saves. Rank 0 saves what is not sharded.
checkpoint::Shard optimizer_shard(const BuiltModel& built, optim::Optimizer& optimizer, int rank);
/// Returns the same of the trained weights and the buffers, if ranks share out the values.
checkpoint::Shard model_shard(const BuiltModel& built, int rank);
/// Returns the targets for restoring this rank's weights and buffers: whole, or in slices if ranks share them out.
std::vector<checkpoint::Part::Target> weight_targets(const BuiltModel& built);

class TrainingState {
 public:
  /// Refers to all arguments, which must outlive this object. The state of `log` is saved too. Every rank must call.
  TrainingState(const Job& job, TrainingSetup& setup, train::Hook& log);

  /// Returns the state after `progress.step` steps, with the score if `best_metric` was evaluated at this step. The
  /// tensors are live: training changes them. Collective, every rank must call: makes running statistics equal and
  /// gathers the generators and the log's state.
  checkpoint::Snapshot gather(const train::Progress& progress, const std::string& best_metric);

  /// Returns the tensors of the state that only updates change, not forward passes.
  std::vector<at::Tensor> what_only_updates_change() const;

  /// Returns whether every rank writes a part; otherwise rank 0 writes everything.
  bool is_shared_out() const noexcept { return setup_.built.ranks_of_state() > 1; }

  /// Returns whether the checkpoint was saved with other validation data.
  bool has_other_validation_data(const checkpoint::Checkpoint& from) const;

  /// Notes the values of the job's source, if ranks share out frozen weights; take_up() compares those of a checkpoint
  /// with them. Call it before anything is restored, if there may be a checkpoint. Every rank must call.
  void note_given();

  /// Restores everything, without the other ranks. Throws Error(usage) if the job changed in a way that needs
  /// acceptance or is not allowed; Damage, Unreadable or Error(checkpoint) if the checkpoint cannot be read. Sets
  /// `progress` to that of the checkpoint, and plans the rest of the run. No background save may still be copying the
  /// state.
  void take_up(const checkpoint::Checkpoint& from, train::Progress& progress, bool accept_changes);
  /// Does the same without comparing the job's settings, for a run that already continues from this checkpoint.
  void restore(const checkpoint::Checkpoint& from, train::Progress& progress);

 private:
  std::vector<std::string> files_of_others() const;
  void check_global_batch(const checkpoint::Checkpoint& from, bool accept_changes) const;
  train::PlanStart start_at(const checkpoint::Checkpoint& from) const;
  void restore_weights(const checkpoint::Checkpoint& from);
  void note_source(const checkpoint::Checkpoint& from);
  void take_frozen();
  void restore_optimizer(const checkpoint::Checkpoint& from);
  void restore_generators(const checkpoint::Checkpoint& from);

  const Job& job_;
  TrainingSetup& setup_;
  train::Hook& log_;
  std::string val_content_;                                  // content_digits() of the validation data
  std::string frozen_source_;                                // origin of the frozen values
  std::map<std::string, checkpoint::Frozen::Tensor> given_;  // values of note_given(), on rank 0
  std::shared_ptr<checkpoint::FrozenWeights> frozen_;        // frozen weights of rank 0, once something was saved
};

}  // namespace gputrain::app
