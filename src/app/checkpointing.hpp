// Saving a run and going on from it: gathers what training consists of, and puts it back.
#pragma once

#include <string>
#include <utility>

#include "assembly.hpp"
#include "gputrain/checkpoint/checkpoint.hpp"
#include "gputrain/train/hook.hpp"
#include "run_folder.hpp"

namespace gputrain::app {

class Checkpointing {
 public:
  struct Parts {
    const Job& job;
    Place& place;
    BuiltModel& built;
    Updates& updates;
    train::Hook& log;  // its state belongs to the checkpoint
    RunFolder folder;
  };

  explicit Checkpointing(Parts parts);

  /// Follows `checkpoint.resume`: restores everything from the checkpoint it names, if any, and returns what to print.
  /// Throws Error(checkpoint) when there must be one and is not, Error(usage) when the job has changed in a way that
  /// does not allow going on. Every rank must call.
  std::string resume(train::Progress& progress, bool accept_changes);

  /// Saves after `progress.step` steps and removes checkpoints past checkpoint.keep_last. Every rank must call.
  void save(const train::Progress& progress);

 private:
  std::optional<checkpoint::Checkpoint> choose() const;
  void restore(const checkpoint::Checkpoint& from, train::Progress& progress);
  void restore_generators(const checkpoint::Checkpoint& from);
  checkpoint::NamedTensors weights() const;

  Parts parts_;
  checkpoint::CheckpointStore store_;
};

}  // namespace gputrain::app
