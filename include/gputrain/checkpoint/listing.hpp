// Which checkpoints a folder has, by names, manifests and sizes: without reading tensors, and without LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/checkpoint/manifest.hpp"

namespace gputrain::checkpoint {

/// What can be said of a checkpoint without reading its tensors.
struct Listed {
  std::filesystem::path folder;
  int64_t step = 0;
  uint64_t bytes = 0;  // of all its files
  std::optional<Score> score;
  Lineage lineage;
  std::string problem;  // empty: manifest and sizes are right; hashes were not looked at
};

/// Those with a finished name, newest first, good or not. Throws Error(checkpoint) when the folder cannot be read.
std::vector<Listed> list_checkpoints(const std::filesystem::path& folder);

/// The newest of them that is of this lineage and whose manifest and sizes are right. Throws Error(checkpoint) when the
/// folder cannot be read.
std::optional<Listed> newest_listed(const std::filesystem::path& folder, const Lineage& lineage = {});

/// The steps for which there is a folder with a finished name, newest first.
std::vector<int64_t> steps_in(const std::filesystem::path& folder);

/// Reads a manifest and tests that every file of it is there and has its size. Throws Damage or Unreadable.
Manifest look_at_files(const std::filesystem::path& folder);

/// Where the frozen weights of a checkpoint lie: beside its folder, or in it where somebody has put them there.
std::filesystem::path frozen_path(const std::filesystem::path& checkpoint, const Frozen& frozen);

/// Tests that the file is there and has its size. Throws Unreadable: with the file put back the checkpoint is good.
void look_at_frozen(const std::filesystem::path& checkpoint, const Frozen& frozen);

/// A whole file of a checkpoint that is no tensor file. Throws Damage or Unreadable.
std::string read_text(const std::filesystem::path& path);

}  // namespace gputrain::checkpoint
