// Weights that training does not change: written once beside a run's checkpoints instead of into each of them.
//
//   ckpt/frozen-<hash>.safetensors    named by the manifests of all checkpoints that need it
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "gputrain/checkpoint/listing.hpp"
#include "gputrain/checkpoint/manifest.hpp"
#include "gputrain/checkpoint/safetensors.hpp"

namespace gputrain::checkpoint {

class FrozenWeights {
 public:
  /// Hashes the tensors, which must not change as long as this lives. `source`: where their values come from.
  FrozenWeights(NamedTensors tensors, std::string source);

  const Frozen& note() const noexcept { return note_; }

  /// Bytes that put_into() would still have to write there.
  uint64_t missing_bytes(const std::filesystem::path& folder) const;

  /// Writes the file into a folder of checkpoints unless it is there, and reads it back, once for each folder. Throws
  /// Error(checkpoint).
  void put_into(const std::filesystem::path& folder);

 private:
  NamedTensors tensors_;
  Frozen note_;
  std::set<std::filesystem::path> holders_;  // folders whose file was compared with its hash
};

/// As look_at_frozen(), and compares the file with its hash.
void verify_frozen(const std::filesystem::path& checkpoint, const Frozen& frozen);

/// Removes frozen weights that no manifest in the folder names, those of checkpoints set aside included. Where a
/// manifest cannot be read nothing is removed.
void remove_unused_frozen(const std::filesystem::path& folder);

}  // namespace gputrain::checkpoint
