// Lists the checkpoints of a folder by names, manifests and file sizes, without reading tensors and without LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/checkpoint/manifest.hpp"

namespace gputrain::checkpoint {

/// The facts about a checkpoint that need none of its tensors.
struct Listed {
  std::filesystem::path folder;
  int64_t step = 0;
  uint64_t bytes = 0;  // size of all files
  std::optional<Score> score;
  std::optional<bool> for_good;  // as in its manifest
  std::string problem;           // empty: manifest and sizes are right; hashes were not looked at
};

/// Returns the checkpoints of finished_in(), good or not.
std::vector<Listed> list_checkpoints(const std::filesystem::path& folder);

/// Returns the newest checkpoint of finished_in() whose manifest and sizes are right.
std::optional<Listed> newest_listed(const std::vector<std::filesystem::path>& folders);

/// The parts of a name in a folder of checkpoints.
struct StepName {
  int64_t step = 0;
  int64_t number = 1;  // 2 and up: the step was saved again
  std::string suffix;  // ".bad", ".partial"; empty: a finished checkpoint
};
/// Parses a name; nothing for a name that no checkpoint has.
std::optional<StepName> parse_step_name(const std::string& name);

/// Returns the checkpoints with a finished name and their steps, newest first. Those of one step are in the order of
/// the folders, and in a folder the one saved last comes first. Throws Error(checkpoint) when the first folder cannot
/// be read; for another folder, `unreadable` says so.
std::vector<std::pair<int64_t, std::filesystem::path>> finished_in(const std::vector<std::filesystem::path>& folders,
                                                                   std::string* unreadable = nullptr);

/// Returns the folders of a run's branches by number: the first one is `checkpoints` itself, then "branch-2", ...
std::map<int64_t, std::filesystem::path> branches_in(const std::filesystem::path& checkpoints);
std::filesystem::path branch_folder(const std::filesystem::path& checkpoints, int64_t branch);

/// Returns the newest branch that has a checkpoint with a finished name; 1 when there is none.
int64_t newest_branch_in(const std::filesystem::path& checkpoints);

/// Reads a manifest and checks that every file it names exists with the right size. Throws Damage or Unreadable.
Manifest look_at_files(const std::filesystem::path& folder);

/// Returns the path of a checkpoint's frozen weights: beside its folder, or inside it if somebody has put them there.
std::filesystem::path frozen_path(const std::filesystem::path& checkpoint, const Frozen& frozen);

/// Checks that the file exists and has its size. Throws Unreadable: once the file is back, the checkpoint is good.
void look_at_frozen(const std::filesystem::path& checkpoint, const Frozen& frozen);

/// Reads a whole text file (manifest, state) of a checkpoint. Throws Damage or Unreadable.
std::string read_text(const std::filesystem::path& path);

}  // namespace gputrain::checkpoint
