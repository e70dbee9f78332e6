// What lies in a folder of checkpoints, for the verbs that look after it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/checkpoint/store.hpp"

namespace gputrain::app {

/// One folder in it.
struct CkptEntry {
  enum class Kind {
    checkpoint,  // has a finished name, good or not
    set_aside,   // "step-00000020.bad", or of a branch that was left: not read again
    left_over,   // ".partial": being written, or left by a process that was killed
  };
  std::filesystem::path folder;
  std::filesystem::path root;  // the folder of checkpoints
  Kind kind = Kind::checkpoint;
  int64_t step = 0;
  uint64_t bytes = 0;              // on disk
  std::optional<int64_t> written;  // seconds since 1970
  std::optional<checkpoint::Score> score;
  std::string problem;  // by manifest and sizes; empty: none seen

  /// "step-00000020", "branch-2/step-00000020"
  std::string name() const { return folder.lexically_relative(root).string(); }
};

/// Everything in it, oldest step first.
std::vector<CkptEntry> entries_of(const std::filesystem::path& folder);

/// The metric that the newest good one with a score was scored by; empty: none has a score.
std::string metric_of(const std::vector<CkptEntry>& entries);

/// Name, kind, path, step, size and time for a program that reads it.
nlohmann::ordered_json entry_json(const CkptEntry& entry);

/// "2026-03-01 12:00:00" where we are, or "2026-03-01T12:00:00Z".
std::string time_text(int64_t seconds, bool utc);
std::string size_text(uint64_t bytes);

/// Prints a document to stdout, whatever bytes its paths have.
void print_json(const nlohmann::ordered_json& json);

/// Whether the user named one checkpoint, by whatever name: "step-00000020", "latest", "step-00000020.bad".
bool is_one_checkpoint(const std::filesystem::path& named);

/// The folder of checkpoints that the user named: a run folder, its ckpt/, or a copy of that. Error(usage) otherwise.
std::filesystem::path checkpoints_folder(const std::filesystem::path& named);

/// What is wrong with a checkpoint in one line, without the folder's path in front. Hashes everything; empty: it is
/// good.
std::string problem_of(const std::filesystem::path& folder);

/// The first line of an error, its path told from the checkpoint's folder.
std::string told_within(const std::filesystem::path& folder, const std::string& error);

}  // namespace gputrain::app
