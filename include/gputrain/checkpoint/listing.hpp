// Which checkpoints a folder has, by names, manifests and sizes: without reading tensors, and without LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
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

/// What a name in a folder of checkpoints says.
struct StepName {
  int64_t step = 0;
  int64_t number = 1;  // 2 and up: the step was saved again
  std::string suffix;  // ".bad", ".partial"; empty: a finished checkpoint
};
/// Nothing for a name that no checkpoint has.
std::optional<StepName> parse_step_name(const std::string& name);

/// The folders with a finished name and their steps, newest first; of one step the one that was saved last comes first.
/// Throws Error(checkpoint) when the folder cannot be read.
std::vector<std::pair<int64_t, std::filesystem::path>> finished_in(const std::filesystem::path& folder);

/// Reads a manifest and tests that every file of it is there and has its size. Throws Damage or Unreadable.
Manifest look_at_files(const std::filesystem::path& folder);

/// A whole file of a checkpoint that is no tensor file. Throws Damage or Unreadable.
std::string read_text(const std::filesystem::path& path);

}  // namespace gputrain::checkpoint
