// Checkpoints that cannot tear: a folder per step, written beside its name, sealed by a manifest, renamed into place.
//
//   ckpt/step-00000100/{model,optimizer,...}.safetensors, state.json, manifest.json
//
// The manifest holds size and hash of every other file. A reader trusts nothing that does not match it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/optim/optimizer.hpp"

namespace gputrain::checkpoint {

/// A checkpoint whose every file was verified.
class Checkpoint {
 public:
  /// Throws Error(checkpoint) that says what is wrong with the folder.
  static Checkpoint open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const noexcept { return folder_; }
  int64_t step() const noexcept { return step_; }
  const nlohmann::json& state() const noexcept { return *state_; }

  /// The tensors that were saved as `name`; Error(checkpoint) when there are none.
  const SafetensorsFile& file(const std::string& name) const;

 private:
  Checkpoint() = default;

  std::filesystem::path folder_;
  int64_t step_ = 0;
  std::shared_ptr<const nlohmann::json> state_;
  std::map<std::string, SafetensorsFile> files_;
};

/// The checkpoints of a run. One process writes (rank 0).
class CheckpointStore {
 public:
  /// `folder` is created by the first save. After a save, the newest `keep_last` checkpoints stay.
  explicit CheckpointStore(std::filesystem::path folder, int64_t keep_last = 2);

  /// Saves tensors by file ("model" becomes model.safetensors) and small state. When this returns, the checkpoint is
  /// durable, reads back, and older ones are pruned; a checkpoint of the same step is replaced. Throws
  /// Error(checkpoint) otherwise, and then every older checkpoint is still there.
  std::filesystem::path save(int64_t step, const std::map<std::string, NamedTensors>& files,
                             const nlohmann::json& state);

  struct Rejected {
    std::filesystem::path folder;
    std::string reason;
  };
  struct Search {
    std::optional<Checkpoint> newest;
    std::vector<Rejected> rejected;  // newer ones that did not verify
  };

  /// The newest checkpoint that verifies.
  Search find_newest() const;

 private:
  std::filesystem::path folder_;
  int64_t keep_last_;
};

/// The live tensors of an optimizer, flat buffers cut into one view per parameter ("exp_avg.<parameter>"): what is
/// saved, and what `restore` fills. Independent of the order and padding of the arena.
NamedTensors per_parameter(const device::Arena& arena, const optim::Optimizer::State& state);

/// Copies a file into live tensors. Names, dtypes and shapes must agree exactly; throws Error(checkpoint) otherwise,
/// before anything is copied.
void restore(const SafetensorsFile& file, const NamedTensors& live);

}  // namespace gputrain::checkpoint
