// Lists the checkpoints of a folder by names, manifests and file sizes, without reading tensors and without LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/checkpoint/manifest.hpp"

namespace gputrain::checkpoint {

/// What is known about a checkpoint without reading its tensors.
struct Listed {
  std::filesystem::path folder;
  int64_t step = 0;
  uint64_t bytes = 0;  // of all files
  std::optional<Score> score;
  Lineage lineage;
  std::string problem;  // empty: manifest and sizes are right; hashes are not checked
};

/// All folders with a finished checkpoint's name, newest first, valid or not. Throws Error(checkpoint) if the folder
/// cannot be read.
std::vector<Listed> list_checkpoints(const std::filesystem::path& folder);

/// The newest checkpoint of this lineage with a valid manifest and right file sizes. Throws Error(checkpoint) if the
/// folder cannot be read.
std::optional<Listed> newest_listed(const std::filesystem::path& folder, const Lineage& lineage = {});

/// Steps of all folders with a finished checkpoint's name, newest first.
std::vector<int64_t> steps_in(const std::filesystem::path& folder);

/// Reads a manifest and checks that every file it names exists with the right size. Throws Damage or Unreadable.
Manifest look_at_files(const std::filesystem::path& folder);

/// Reads a whole text file (manifest, state) of a checkpoint. Throws Damage or Unreadable.
std::string read_text(const std::filesystem::path& path);

}  // namespace gputrain::checkpoint
