// The checkpoints of a run: one folder per step, written under a temporary name, sealed by a manifest, renamed into
// place.
//
//   ckpt/step-00000100/{model,optimizer,...}.safetensors, state.json, manifest.json
//   ckpt/step-00000100-2      the same step, saved again, until that is known to be good
//   ckpt/branch-2/step-...    of a branch that a run began by choice of where to go on from
//   ckpt/frozen-HASH.safetensors    weights that are not trained, once for all checkpoints that name them
//   ckpt/latest, ckpt/best    links for people; nothing here reads them
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/checkpoint/checkpoint.hpp"
#include "gputrain/checkpoint/frozen.hpp"
#include "gputrain/checkpoint/listing.hpp"

namespace gputrain::checkpoint {

/// One rank's shard of a part.
struct Shard {
  std::string part;
  int64_t rank = 0;
  int64_t ranks = 1;                    // number of shards of the part
  NamedTensors tensors;                 // tensors listed in `slices` are flat
  std::map<std::string, Slice> slices;  // keys: tensor names; a tensor not listed here is whole
};

/// The content of one checkpoint. Tensors may be live: the owner of the snapshot must keep them unchanged until it is
/// written.
struct Snapshot {
  int64_t step = 0;
  std::map<std::string, NamedTensors> files;  // unsharded parts: "model" becomes model.safetensors
  std::vector<Shard> shards;                  // sharded parts
  std::shared_ptr<FrozenWeights> frozen;      // rank 0; null: nothing is frozen
  std::string state;                          // JSON text
  std::optional<Score> score;                 // if the metric was measured at this step
  std::optional<bool> for_good;               // whether retention by mark keeps it
  Origin origin;
  int64_t rank = 0;                                  // rank 0 writes everything, any other rank its shards
  std::vector<std::string> awaited;                  // on rank 0: names of the files that other ranks write
  double patience_seconds = 0;                       // how long rank 0 waits for them
  std::vector<std::filesystem::path> synced_before;  // other files that must be durable before the checkpoint

  uint64_t bytes() const;  // size of the tensors
};

/// The rules for keeping checkpoints. A checkpoint stays if at least one of them keeps it.
struct Retention {
  int64_t keep_last = 2;   // at least 1
  int64_t keep_best = 0;   // keeps those with the best scores; only scores of the newest checkpoint's metric count
  int64_t keep_every = 0;  // keeps steps that are multiples of it; 0: none
  bool by_mark = false;  // keeps checkpoints saved for good instead; keep_every decides about those without such a mark
  bool smaller_is_better = true;
};

/// A checkpoint that a search has passed over.
struct Rejected {
  std::filesystem::path folder;
  std::string reason;
  bool is_damaged = true;  // false: it cannot be read at this moment
};
struct Search {
  std::optional<Checkpoint> newest;
  std::vector<Rejected> rejected;  // newer ones that did not verify
  std::string unreadable;          // why a folder other than the first one could not be listed
};

/// Reads a candidate, as deep as its caller wants; throws Damage or Unreadable when it is not good.
using Read = std::function<void(const Checkpoint&)>;

/// Finds the newest checkpoint that is good, in the order of finished_in(). Calls `read` for one after the other until
/// it returns; by default every file is compared with its hash. An exception other than Damage and Unreadable ends the
/// search.
Search find_newest(const std::vector<std::filesystem::path>& folders, const Read& read = {});

/// Takes a checkpoint out of the way under a name that is never read, "step-00000100.bad" or with a number, and returns
/// it. Throws Error(checkpoint) when it cannot.
std::filesystem::path archive_checkpoint(const std::filesystem::path& folder);

/// The checkpoints of one branch. One process writes (rank 0), from one thread at a time.
class CheckpointStore {
 public:
  /// The first save creates the folder.
  explicit CheckpointStore(std::filesystem::path checkpoints, Retention retention = {}, int64_t branch = 1);

  const std::filesystem::path& folder() const noexcept { return folder_; }

  /// Makes room for a sharded save: rank 0 calls this before any rank calls write(). Throws Error(checkpoint) if the
  /// disk has too little space.
  void prepare(const Snapshot& snapshot);

  /// Writes a checkpoint, or a rank's shards of one that rank 0 completes; all ranks' folders are on one disk. When
  /// this returns it is durable, and has the returned name, which is a new one when its step was saved before. Throws
  /// Error(checkpoint) otherwise; then every older checkpoint is still there, and a half-written one is gone. Looks for
  /// free space before the first byte.
  std::filesystem::path write(const Snapshot& snapshot);

  /// Call instead of write() when this rank cannot save: tells rank 0, which would wait for its shards.
  void withdraw(const Snapshot& snapshot, const std::string& reason) const;

  /// Reads a checkpoint back from the disk. Only when it is good, removes older ones that no rule keeps, and the first
  /// save of its step, whose name it then takes. Returns its name. Throws Error(checkpoint) with its flaw.
  std::filesystem::path confirm(const std::filesystem::path& written);

  /// Calls write() and confirm().
  std::filesystem::path save(const Snapshot& snapshot);

  Search find_newest(const Read& read = {}) const { return checkpoint::find_newest({folder_}, read); }

  /// Returns all folders with a finished checkpoint's name, newest first, valid or not.
  std::vector<Listed> list() const;

  /// Removes checkpoints that the retention does not keep, and returns their folders. With `only_tell`, removes
  /// nothing. Keeps the newest one in `verified` and all newer ones, which do not count; without a newest one, removes
  /// nothing.
  std::vector<std::filesystem::path> prune(const Search& verified, bool only_tell = false) const;

 private:
  std::filesystem::path partial_folder_of(int64_t step) const;
  std::vector<std::filesystem::path> prune_up_to(const std::filesystem::path& newest, bool only_tell) const;
  void point_hints_at(const std::filesystem::path& newest) const;
  void tell_once(const std::string& trouble);

  std::filesystem::path root_, folder_;  // folders of all branches, and of this one
  Retention retention_;
  std::string told_;                   // message about files that could not be removed
  mutable std::string told_of_hints_;  // message about files in the way of the links
};

}  // namespace gputrain::checkpoint
