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

/// The temporary name of a checkpoint that is being written or removed.
std::filesystem::path partial_name_of(const std::filesystem::path& checkpoint);

/// The name of a checkpoint that a newer save of the same step has replaced.
std::filesystem::path replaced_name_of(const std::filesystem::path& checkpoint);

/// Restores the names of replaced checkpoints if the names are free.
void put_back_replaced(const std::filesystem::path& folder);

/// Removes folders that a killed process was writing or removing; keeps replaced checkpoints. Returns a warning if one
/// cannot be removed, which only wastes space; otherwise "".
std::string remove_partial_folders(const std::filesystem::path& folder);

/// Removes replaced checkpoints; call it once a valid newer one exists. The next call retries what could not be
/// removed.
void remove_replaced_folders(const std::filesystem::path& folder);

/// Checks free space before the save starts, so that a full disk is found early. Throws Error(checkpoint) with this
/// hint.
void check_room(const std::filesystem::path& folder, uint64_t needed, const std::string& hint);

/// Renames `written` to `target`, durably. An existing `target` gets its replaced name. If that name is taken, perhaps
/// by the last valid checkpoint, `target` gets a partial name.
void put_in_place(const std::filesystem::path& written, const std::filesystem::path& target);

}  // namespace gputrain::checkpoint
