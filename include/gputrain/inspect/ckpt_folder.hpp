// Content of a checkpoint folder, for the ckpt subcommands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/checkpoint/store.hpp"

namespace gputrain::app {

/// Subfolder with a checkpoint or remains of one.
struct CkptEntry {
  enum class Kind {
    checkpoint,  // has a finished name, good or not
    set_aside,   // "step-00000020.bad", or part of an abandoned branch: not read again
    left_over,   // ".partial": being written, or left by a process that was killed
  };
  std::filesystem::path folder;
  std::filesystem::path root;  // the folder of checkpoints
  Kind kind = Kind::checkpoint;
  int64_t step = 0;
  uint64_t bytes = 0;              // on disk
  std::optional<int64_t> written;  // seconds since 1970
  std::optional<checkpoint::Score> score;
  std::string problem;  // found in manifest or file sizes; empty: none

  /// Returns "step-00000020", "branch-2/step-00000020".
  std::string name() const { return folder.lexically_relative(root).string(); }
};

/// Returns all entries, oldest step first.
std::vector<CkptEntry> entries_of(const std::filesystem::path& folder);

/// Returns the metric of the newest good checkpoint that has a score; empty: none has a score.
std::string metric_of(const std::vector<CkptEntry>& entries);

/// Returns name, kind, path, step, size and time as JSON.
nlohmann::ordered_json entry_json(const CkptEntry& entry);

/// Returns "2026-03-01 12:00:00" in local time, or "2026-03-01T12:00:00Z" in UTC.
std::string time_text(int64_t seconds, bool utc);
std::string size_text(uint64_t bytes);

/// Prints a document to stdout. Replaces bytes that are not UTF-8.
void print_json(const nlohmann::ordered_json& json);

/// Returns whether the path is one checkpoint, under any of its names: "step-00000020", "latest", "step-00000020.bad".
bool is_one_checkpoint(const std::filesystem::path& named);

/// Returns the checkpoint folder that the user named: a run's ckpt/ or a copy of it. Throws Error(usage) otherwise.
std::filesystem::path checkpoints_folder(const std::filesystem::path& named);

/// Returns a checkpoint's problem in one line, without the path of its folder; empty: it is good. Hashes all files.
std::string problem_of(const std::filesystem::path& folder);

/// Returns the first line of an error, with its path relative to the checkpoint folder.
std::string told_within(const std::filesystem::path& folder, const std::string& error);

}  // namespace gputrain::app
