// A checkpoint as a reader sees it, and putting it back into live tensors. A reader trusts nothing that does not match
// the manifest, which holds size and hash of every other file.
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
  /// Every file is there and has its size, and the state is what was written; the tensors are compared with their
  /// hashes as they are read. Throws Damage or Unreadable that says what is wrong with the folder.
  static Checkpoint look_into(const std::filesystem::path& folder);

  /// As look_into, and compares every file with its hash.
  static Checkpoint open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const noexcept { return folder_; }
  int64_t step() const noexcept { return manifest_.step; }
  const Manifest& manifest() const noexcept { return manifest_; }
  const nlohmann::json& state() const noexcept { return *state_; }

  std::vector<std::string> part_names() const;  // "model", "optimizer", ...
  /// The tensors that were saved as `name`; Damage when there are none.
  const Part& part(const std::string& name) const;

 private:
  Checkpoint() = default;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::shared_ptr<const nlohmann::json> state_;
  std::map<std::string, Part> parts_;
};

/// Compares every file in a checkpoint's folder with its hash, by what the disk holds rather than what memory remembers
/// of it, where the file system can tell. Throws Damage or Unreadable.
void verify(const std::filesystem::path& folder, const Manifest& manifest);

/// The live tensors of an optimizer, flat buffers cut into one view per parameter ("exp_avg.<parameter>"), or into
/// slices at the bounds of what the rank owns: what is saved, and what is read. Independent of the order and padding of
/// the arena, and of how many ranks share it.
std::vector<Part::Target> per_parameter(const device::Arena& arena, const optim::Optimizer::State& state);

}  // namespace gputrain::checkpoint
