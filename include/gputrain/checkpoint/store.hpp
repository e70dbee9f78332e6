// The checkpoints of a run: one folder per step, written under a temporary name, sealed by a manifest, renamed into
// place.
//
//   ckpt/step-00000100/{model,optimizer,...}.safetensors, state.json, manifest.json
//   ckpt/latest, ckpt/best    links for people; nothing here reads them
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/checkpoint/checkpoint.hpp"
#include "gputrain/checkpoint/listing.hpp"

namespace gputrain::checkpoint {

/// One rank's shard of a part.
struct Shard {
  std::string part;
  int64_t rank = 0;
  int64_t ranks = 1;                    // number of shards of the part
  NamedTensors tensors;                 // tensors listed in `slices` are flat
  std::map<std::string, Slice> slices;  // by tensor name; a tensor not listed here is whole
};

/// The content of one checkpoint. Tensors may be live: the owner of the snapshot must keep them unchanged until it is
/// written.
struct Snapshot {
  int64_t step = 0;
  std::map<std::string, NamedTensors> files;  // unsharded parts: "model" becomes model.safetensors
  std::vector<Shard> shards;                  // sharded parts
  std::string state;                          // JSON text
  std::optional<Score> score;                 // if the metric was measured at this step
  Origin origin;
  int64_t rank = 0;                                  // rank 0 writes everything, any other rank its shards
  std::vector<std::string> awaited;                  // on rank 0: names of the files that other ranks write
  double patience_seconds = 0;                       // how long rank 0 waits for them
  std::vector<std::filesystem::path> synced_before;  // other files that must be durable before the checkpoint

  uint64_t bytes() const;  // of the tensors
};

/// Which checkpoints to keep. A checkpoint stays if at least one of the rules keeps it.
struct Retention {
  int64_t keep_last = 2;   // at least 1
  int64_t keep_best = 0;   // by score; only scores of the newest checkpoint's metric count
  int64_t keep_every = 0;  // keeps steps that are multiples of it; 0: none
  bool smaller_is_better = true;
};

/// Only rank 0 writes, from one thread at a time.
class CheckpointStore {
 public:
  /// The first save creates `folder`.
  explicit CheckpointStore(std::filesystem::path folder, Retention retention = {});

  const std::filesystem::path& folder() const noexcept { return folder_; }
  /// From now on, finds only checkpoints of this lineage.
  void follow(Lineage lineage) { lineage_ = std::move(lineage); }
  const Lineage& lineage() const noexcept { return lineage_; }
  /// The path for a step's checkpoint, whether it exists or not.
  std::filesystem::path folder_of(int64_t step) const;

  /// For sharded saves: rank 0 calls this before any rank calls write(). Throws Error(checkpoint) if the disk has too
  /// little space.
  void prepare(const Snapshot& snapshot);

  /// Writes a checkpoint; on a rank other than 0, writes its shards of the checkpoint that rank 0 completes. All ranks
  /// need the same file system. The checkpoint is durable when this returns on rank 0, and replaces one of the same
  /// step. Checks free space first. On failure throws Error(checkpoint), removes the partial checkpoint and leaves
  /// older ones unchanged.
  std::filesystem::path write(const Snapshot& snapshot);

  /// Call instead of write() when this rank cannot save: tells rank 0, which would wait for its shards.
  void withdraw(const Snapshot& snapshot, const std::string& reason) const;

  /// Reads the step's checkpoint back from the disk. If it is valid, prunes older ones; otherwise throws
  /// Error(checkpoint). A damaged one is set aside for the checkpoint it had replaced.
  void confirm(int64_t step);

  /// write() and confirm().
  std::filesystem::path save(const Snapshot& snapshot);

  struct Rejected {
    std::filesystem::path folder;
    std::string reason;
    bool is_damaged = true;  // false: it cannot be read now
  };
  struct Search {
    std::optional<Checkpoint> newest;
    std::vector<Rejected> rejected;  // newer ones that failed the check
  };

  /// Reads everything needed from a candidate. Throws Damage or Unreadable if the candidate is not valid.
  using Read = std::function<void(const Checkpoint&)>;

  /// Finds the newest valid checkpoint: calls `read` on each candidate, newest first, until one call returns. By
  /// default checks the hash of every file. Any other exception from `read` ends the search.
  Search find_newest(const Read& read = {}) const;

  /// Restores the names of checkpoints that a killed process was replacing on a file system without atomic exchange.
  /// Only the writer calls this, before it selects a checkpoint to resume from. Throws Error(checkpoint).
  void put_back_replaced() const;

  /// If `damaged` had replaced a checkpoint that still exists, renames `damaged` to ".bad" and restores the other one.
  /// Returns whether it did. Throws Error(checkpoint).
  bool bring_back_replaced(const std::filesystem::path& damaged) const;

  /// The path of the checkpoint that `folder` replaced, whether it exists or not.
  static std::filesystem::path replaced_by(const std::filesystem::path& folder);

  /// All folders with a finished checkpoint's name, newest first, valid or not.
  std::vector<Listed> list() const;

  /// Removes checkpoints that the retention does not keep, and returns their folders. With `only_tell`, removes
  /// nothing. Keeps the newest one in `verified` and all newer ones, which do not count; without a newest one, removes
  /// nothing.
  std::vector<std::filesystem::path> prune(const Search& verified, bool only_tell = false) const;

  /// Removes the checkpoint that `folder` replaced, if it still exists.
  void remove_replaced(const std::filesystem::path& folder) const;

 private:
  std::filesystem::path partial_folder_of(int64_t step) const;
  std::vector<std::filesystem::path> prune_up_to(int64_t newest, bool only_tell) const;
  void point_hints_at(int64_t newest) const;
  void tell_once(const std::string& trouble);

  std::filesystem::path folder_;
  Retention retention_;
  Lineage lineage_;
  std::string told_;  // last warning, so that it is not repeated
};

}  // namespace gputrain::checkpoint
