// Weights that training does not change: written once beside a run's checkpoints instead of into each of them.
//
//   ckpt/frozen-<hash>.safetensors    named by the manifests of all checkpoints that need it
#pragma once

#include <filesystem>
#include <mutex>
#include <set>
#include <string>

#include "gputrain/checkpoint/listing.hpp"
#include "gputrain/checkpoint/manifest.hpp"
#include "gputrain/checkpoint/safetensors.hpp"

namespace gputrain::checkpoint {

/// Returns the entry of a frozen tensor in a manifest.
Frozen::Tensor note_of(const at::Tensor& tensor);

/// Returns whether a tensor has other values than the frozen one that was written. One of a wider type is cast first;
/// one of another type that is not wider cannot tell, nor can one that only one of the two has packed: it counts as
/// equal.
bool has_other_values(const at::Tensor& now, const Frozen::Tensor& written);

/// One thread may write while another asks.
class FrozenWeights {
 public:
  /// The time for which the tensors are kept: copies only until they are written.
  enum class Kept { always, until_written };

  /// Hashes the tensors, which must not change as long as this lives. `source`: where their values come from.
  FrozenWeights(NamedTensors tensors, std::string source, Kept kept = Kept::always);

  const Frozen& note() const noexcept { return note_; }

  /// Returns whether put_into() can write. False if the tensors were let go, and a file with them is gone.
  bool is_at_hand() const;

  /// Returns the bytes that put_into() would still have to write there.
  uint64_t missing_bytes(const std::filesystem::path& folder) const;

  /// Writes the file into a folder of checkpoints unless it is there, and reads it back, once for each folder. Throws
  /// Error(checkpoint), also if it is not there and the tensors were let go.
  void put_into(const std::filesystem::path& folder);

 private:
  Frozen note_;
  Kept kept_;
  mutable std::mutex mutex_;  // guards the members below
  NamedTensors tensors_;
  std::set<std::filesystem::path> holders_;  // folders whose file was compared with its hash
};

/// Does what look_at_frozen() does, and compares the file with its hash.
void verify_frozen(const std::filesystem::path& checkpoint, const Frozen& frozen);

/// Removes frozen weights that no manifest in the folder names; manifests of checkpoints set aside count too. If a
/// manifest cannot be read, nothing is removed.
void remove_unused_frozen(const std::filesystem::path& folder);

}  // namespace gputrain::checkpoint
