// Reads a checkpoint and restores it into live tensors. The manifest holds size and hash of every other file; a file
// that does not match is rejected.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/checkpoint/manifest.hpp"
#include "gputrain/checkpoint/part.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/optim/optimizer.hpp"

namespace gputrain::checkpoint {

class Checkpoint {
 public:
  /// Checks that every file exists with its size, and checks the hash of the state. Tensors are checked against their
  /// hashes when they are read. Throws Damage or Unreadable.
  static Checkpoint look_into(const std::filesystem::path& folder);

  /// Opens like look_into(), but checks the hash of every file.
  static Checkpoint open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const noexcept { return folder_; }
  int64_t step() const noexcept { return manifest_.step; }
  const Manifest& manifest() const noexcept { return manifest_; }
  const nlohmann::json& state() const noexcept { return *state_; }

  /// Returns the tensors of "model", "optimizer" or another part. Throws Damage if there are none.
  const Part& part(const std::string& name) const;

 private:
  Checkpoint() = default;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::shared_ptr<const nlohmann::json> state_;
  std::map<std::string, Part> parts_;
};

/// Checks every file of a checkpoint against its hash. Reads from the disk, not from the page cache, if the file system
/// allows it. Throws Damage or Unreadable.
void verify(const std::filesystem::path& folder, const Manifest& manifest);

/// Does the same for the sizes of all files and the hash of one, which may be that of the frozen weights.
void verify_file(const std::filesystem::path& folder, const std::string& name);

/// Returns the targets of saving and restoring an optimizer: its flat buffers cut into one view per parameter
/// ("exp_avg.<parameter>"), or into slices at the bounds of this rank's shard. The result does not depend on arena
/// order, padding or number of ranks.
std::vector<Part::Target> per_parameter(const device::Arena& arena, const optim::Optimizer::State& state);
/// Does the same for one flat buffer of what the rank owns, named "<prefix><parameter>".
std::vector<Part::Target> per_parameter(const device::Arena& arena, const at::Tensor& flat, const std::string& prefix);
/// Does the same for the values that have memory, named as their parameters.
std::vector<Part::Target> values_per_parameter(const device::Arena& arena);
/// Does the same for this rank's share of the frozen values, if ranks share them out.
std::vector<Part::Target> per_frozen_parameter(const device::Arena& arena);

}  // namespace gputrain::checkpoint
