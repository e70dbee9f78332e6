// The checkpoints of a run: one folder per step, written beside its name, sealed by a manifest, renamed into place.
//
//   ckpt/step-00000100/{model,optimizer,...}.safetensors, state.json, manifest.json
//   ckpt/latest, ckpt/best    links for people; nothing here reads them
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/checkpoint/checkpoint.hpp"

namespace gputrain::checkpoint {

/// The metric that tells which checkpoint is best.
struct Score {
  std::string metric;
  double value = 0;
};

/// What one checkpoint consists of. The tensors may be live: whoever keeps the snapshot decides how long they hold still.
struct Snapshot {
  int64_t step = 0;
  std::map<std::string, NamedTensors> files;  // "model" becomes model.safetensors
  std::string state;                          // JSON text
  std::optional<Score> score;                 // when the metric was measured at this step
  std::vector<std::filesystem::path> synced_before;  // other files that must be on disk no later than the checkpoint

  uint64_t bytes() const;  // of the tensors
};

/// Which checkpoints stay. The counts are independent: what one of them keeps stays.
struct Retention {
  int64_t keep_last = 2;   // at least 1
  int64_t keep_best = 0;   // by score, among those scored by the newest one's metric
  int64_t keep_every = 0;  // steps: multiples of it; 0: none
  bool smaller_is_better = true;
};

/// What can be said of a checkpoint without reading its tensors.
struct Listed {
  std::filesystem::path folder;
  int64_t step = 0;
  uint64_t bytes = 0;          // of all its files
  std::optional<Score> score;
  std::string problem;         // empty: manifest and sizes are right; hashes were not looked at
};

/// One process writes (rank 0), from one thread at a time.
class CheckpointStore {
 public:
  /// `folder` is created by the first save.
  explicit CheckpointStore(std::filesystem::path folder, Retention retention = {});

  const std::filesystem::path& folder() const noexcept { return folder_; }
  /// Where the checkpoint of a step is, if there is one.
  std::filesystem::path folder_of(int64_t step) const;

  /// When this returns, the checkpoint is durable and reads back, and older ones that nothing keeps are gone; a
  /// checkpoint of the same step is replaced. Throws Error(checkpoint) otherwise; then every older checkpoint is still
  /// there, and what was half written is gone. Looks for free space before the first byte.
  std::filesystem::path save(const Snapshot& snapshot);

  struct Rejected {
    std::filesystem::path folder;
    std::string reason;
    bool is_damaged = true;  // false: it cannot be read at this moment
  };
  struct Search {
    std::optional<Checkpoint> newest;
    std::vector<Rejected> rejected;  // newer ones that did not verify
  };

  /// The newest checkpoint that verifies, hashes included.
  Search find_newest() const;

  /// Those with a finished name, newest first, good or not.
  std::vector<Listed> list() const;

  /// Removes what the retention does not keep; returns the removed folders. With `only_tell` nothing is removed. The
  /// newest that `verified` found stays, and so do newer ones, which count for nothing; without it nothing goes.
  std::vector<std::filesystem::path> prune(const Search& verified, bool only_tell = false) const;

  /// Takes a checkpoint out of the way under a name that is never read, "step-00000100.bad" or with a number, and
  /// returns it. Throws Error(checkpoint) when it cannot.
  std::filesystem::path set_aside(const std::filesystem::path& folder, const std::string& suffix) const;

 private:
  std::vector<std::filesystem::path> prune_up_to(int64_t newest, bool only_tell) const;
  void point_hints_at(int64_t newest) const;

  std::filesystem::path folder_;
  Retention retention_;
};

}  // namespace gputrain::checkpoint
