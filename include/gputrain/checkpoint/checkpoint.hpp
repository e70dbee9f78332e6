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

  std::vector<std::string> file_names() const;  // "model", "optimizer", ...
  /// The tensors that were saved as `name`; Error(checkpoint) when there are none.
  const SafetensorsFile& file(const std::string& name) const;

 private:
  Checkpoint() = default;

  std::filesystem::path folder_;
  int64_t step_ = 0;
  std::shared_ptr<const nlohmann::json> state_;
  std::map<std::string, SafetensorsFile> files_;
};

/// The live tensors of an optimizer, flat buffers cut into one view per parameter ("exp_avg.<parameter>"): what is
/// saved, and what `restore` fills. Independent of the order and padding of the arena.
NamedTensors per_parameter(const device::Arena& arena, const optim::Optimizer::State& state);

/// Copies a file into live tensors. Names, dtypes and shapes must agree exactly; throws Error(checkpoint) otherwise,
/// before anything is copied.
void restore(const SafetensorsFile& file, const NamedTensors& live);

}  // namespace gputrain::checkpoint
