// The checkpoints of a run: one folder per step, written beside its name, sealed by a manifest, renamed into place.
//
//   ckpt/step-00000100/{model,optimizer,...}.safetensors, state.json, manifest.json
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

/// What one rank owns of a part, where ranks share it out.
struct Shard {
  std::string part;
  int64_t rank = 0;
  int64_t ranks = 1;                    // that the part is cut over
  NamedTensors tensors;                 // those in `slices` are flat
  std::map<std::string, Slice> slices;  // by tensor; one that is not here is whole
};

/// What one checkpoint consists of. The tensors may be live: whoever keeps the snapshot decides how long they hold
/// still.
struct Snapshot {
  int64_t step = 0;
  std::map<std::string, NamedTensors> files;  // parts in one piece: "model" becomes model.safetensors
  std::vector<Shard> shards;                  // parts in several
  std::shared_ptr<FrozenWeights> frozen;      // of rank 0; null: nothing is frozen
  std::string state;                          // JSON text
  std::optional<Score> score;                 // when the metric was measured at this step
  Origin origin;
  int64_t rank = 0;                                  // that writes this: rank 0 everything, another one its shards
  std::vector<std::string> awaited;                  // names of the files that other ranks write, in rank 0's
  double patience_seconds = 0;                       // how long rank 0 waits for them
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

/// One process writes (rank 0), from one thread at a time.
class CheckpointStore {
 public:
  /// `folder` is created by the first save.
  explicit CheckpointStore(std::filesystem::path folder, Retention retention = {});

  const std::filesystem::path& folder() const noexcept { return folder_; }
  /// From now on only checkpoints of this lineage are found.
  void follow(Lineage lineage) { lineage_ = std::move(lineage); }
  const Lineage& lineage() const noexcept { return lineage_; }
  /// Where the checkpoint of a step is, if there is one.
  std::filesystem::path folder_of(int64_t step) const;

  /// Where ranks write together: what rank 0 does, before any of them calls write(). Throws Error(checkpoint) when
  /// there is no room.
  void prepare(const Snapshot& snapshot);

  /// Writes a checkpoint, or a rank's shards of one that rank 0 completes; all ranks' folders are on one disk. When
  /// this returns it is durable. One of the same step is replaced. Throws Error(checkpoint) otherwise; then every older
  /// checkpoint is still there, and what was half written is gone. Looks for free space before the first byte.
  std::filesystem::path write(const Snapshot& snapshot);

  /// In place of write(): what cannot be written is said where rank 0 would wait for it.
  void withdraw(const Snapshot& snapshot, const std::string& reason) const;

  /// Reads the checkpoint of a step back from the disk, and only when it is good removes older ones that nothing keeps.
  /// Throws Error(checkpoint) that says what is wrong with it; one that it had replaced is then in its place again.
  void confirm(int64_t step);

  /// write() and confirm().
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

  /// Reads a candidate, all that is needed of it; throws Damage or Unreadable when it is not good.
  using Read = std::function<void(const Checkpoint&)>;

  /// The newest checkpoint that is good. `read` is called for one after the other, the newest first, until it returns;
  /// by default every file is compared with its hash. What else `read` throws ends the search.
  Search find_newest(const Read& read = {}) const;

  /// A killed process was replacing a checkpoint where the file system cannot do that at once: it has its name again.
  /// Before one is chosen to go on from, by who may write. Throws Error(checkpoint).
  void put_back_replaced() const;

  /// Sets a damaged checkpoint aside as ".bad" where it has replaced one that is still there, which has its name again;
  /// whether it has. Throws Error(checkpoint).
  bool bring_back_replaced(const std::filesystem::path& damaged) const;

  /// Where the checkpoint lies that this one of the same step has replaced, if it is still there.
  static std::filesystem::path replaced_by(const std::filesystem::path& folder);

  /// Those with a finished name, newest first, good or not.
  std::vector<Listed> list() const;

  /// Removes what the retention does not keep; returns the removed folders. With `only_tell` nothing is removed. The
  /// newest that `verified` found stays, and so do newer ones, which count for nothing; without it nothing goes.
  std::vector<std::filesystem::path> prune(const Search& verified, bool only_tell = false) const;

  /// Removes what the checkpoint has replaced, if that is still there: nobody will want it back.
  void remove_replaced(const std::filesystem::path& folder) const;

 private:
  std::filesystem::path partial_folder_of(int64_t step) const;
  std::vector<std::filesystem::path> prune_up_to(int64_t newest, bool only_tell) const;
  void point_hints_at(int64_t newest) const;
  void tell_once(const std::string& trouble);

  std::filesystem::path folder_;
  Retention retention_;
  Lineage lineage_;
  std::string told_;  // of what could not be removed
};

}  // namespace gputrain::checkpoint
