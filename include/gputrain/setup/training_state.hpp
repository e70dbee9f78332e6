// What training consists of: gathered for a checkpoint, and put back from one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gputrain/checkpoint/checkpoint.hpp"
#include "gputrain/checkpoint/store.hpp"
#include "gputrain/setup/assembly.hpp"
#include "gputrain/train/hook.hpp"

namespace gputrain::app {

/// What a rank owns of the optimizer's state and saves; what is not cut is rank 0's.
checkpoint::Shard optimizer_shard(const BuiltModel& built, optim::Optimizer& optimizer, int rank);

class TrainingState {
 public:
  /// Everything given outlives it. `log` is a part of what is saved.
  TrainingState(const Job& job, Assembly& assembly, train::Hook& log);

  /// Everything as it is after `progress.step` steps, with the score of an evaluation made there by `best_metric`. The
  /// tensors are those that training goes on changing. Every rank must call: running statistics become equal, and
  /// generators and the log's state are gathered.
  checkpoint::Snapshot gather(const train::Progress& progress, const std::string& best_metric);

  /// The tensors of it that the next update changes; those that a forward pass changes are not among them.
  std::vector<at::Tensor> what_only_updates_change() const;

  /// Whether every rank has something of its own to write, or else rank 0 has everything.
  bool is_shared_out() const noexcept { return shares_optimizer() || assembly_.reduction.power_sgd; }

  /// Puts everything back. Throws Error(usage) when the job has changed since in a way that does not allow it, unless
  /// such changes are accepted; Damage, Unreadable or Error(checkpoint) for what cannot be read. `progress` becomes
  /// that of the attempt that saved it. No save may still be copying what it changes.
  void take_up(const checkpoint::Checkpoint& from, train::Progress& progress, bool accept_changes);
  /// The same without a look at how the job has changed since, as for a run that goes on from here already.
  void restore(const checkpoint::Checkpoint& from, train::Progress& progress);

 private:
  bool shares_optimizer() const noexcept { return !assembly_.built.owners.empty(); }
  std::vector<std::string> files_of_others() const;
  void check_global_batch(const checkpoint::Checkpoint& from, bool accept_changes) const;
  void restore_weights(const checkpoint::Checkpoint& from);
  void note_source(const checkpoint::Checkpoint& from);
  void restore_optimizer(const checkpoint::Checkpoint& from);
  void restore_generators(const checkpoint::Checkpoint& from);

  const Job& job_;
  Assembly& assembly_;
  train::Hook& log_;
  std::string frozen_source_;                          // where frozen values come from
  std::shared_ptr<checkpoint::FrozenWeights> frozen_;  // of rank 0, once something was saved
};

}  // namespace gputrain::app
