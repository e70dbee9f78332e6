// How a folder of checkpoints changes so that no moment shows half of one under a finished name: what is written or
// removed is so under a name that ends in ".partial".
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include "gputrain/core/error.hpp"

namespace gputrain::checkpoint {

/// Turns what the file system throws into our error.
template <class Action>
auto on_disk(const std::filesystem::path& path, const std::string& what, Action action) {
  try {
    return action();
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(ExitCode::checkpoint, {.what = what + ": " + error.code().message(), .where = path.string()});
  }
}

/// The name under which a checkpoint is written or removed.
std::filesystem::path partial_name_of(const std::filesystem::path& checkpoint);

/// The name of a checkpoint that another one of its step has replaced.
std::filesystem::path replaced_name_of(const std::filesystem::path& checkpoint);

/// Gives replaced checkpoints their names back where nothing has them.
void put_back_replaced(const std::filesystem::path& folder);

/// Removes what is left of folders that a killed process was writing or removing; checkpoints that were replaced stay.
/// Returns what to tell of one that cannot be removed, which takes room and no more; else "".
std::string remove_partial_folders(const std::filesystem::path& folder);

/// Checkpoints that were replaced, once there is one that is known to be good. What cannot be removed waits for the
/// next.
void remove_replaced_folders(const std::filesystem::path& folder);

/// A full disk is better found out before an hour of writing than after it. Throws Error(checkpoint) with this hint.
void check_room(const std::filesystem::path& folder, uint64_t needed, const std::string& hint);

/// Puts `written` in the place of `target`, durably. What was there keeps its replaced name. Where that is taken, by
/// what may be the last that is good, it keeps a partial name.
void put_in_place(const std::filesystem::path& written, const std::filesystem::path& target);

}  // namespace gputrain::checkpoint
