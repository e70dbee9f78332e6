// Atomic changes to a folder of checkpoints: a checkpoint that is being written or removed has a name that ends in
// ".partial", so a finished name never shows half a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include "gputrain/core/error.hpp"

namespace gputrain::checkpoint {

/// Converts file system exceptions to Error(checkpoint).
template <class Action>
auto on_disk(const std::filesystem::path& path, const std::string& what, Action action) {
  try {
    return action();
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(ExitCode::checkpoint, {.what = what + ": " + error.code().message(), .where = path.string()});
  }
}

/// Creates a folder if there is none. Its name is then as durable as its future content.
void create_folder(const std::filesystem::path& folder);

/// Returns the name under which a checkpoint is written or removed.
std::filesystem::path partial_name_of(const std::filesystem::path& checkpoint);

/// Removes the remains of folders that a killed process was writing or removing. Returns a message about one that
/// cannot be removed, which only takes room; else "".
std::string remove_partial_folders(const std::filesystem::path& folder);

/// Checks that there is room, because a full disk is better found out before an hour of writing than after it. Throws
/// Error(checkpoint) with this hint.
void check_room(const std::filesystem::path& folder, uint64_t needed, const std::string& hint);

/// Gives `written` a finished name in `folder` that nothing has had there, durably, and returns it.
std::filesystem::path commit_folder(const std::filesystem::path& written, const std::filesystem::path& folder,
                                    int64_t step);

}  // namespace gputrain::checkpoint
