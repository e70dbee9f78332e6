// Who goes on from an older checkpoint, or starts over, leaves the newer ones: they are set aside, or the next attempt
// would take them up.
#pragma once

#include <cstdint>
#include <filesystem>

#include "gputrain/checkpoint/lineage.hpp"

namespace gputrain::app {

/// Sets aside what is newer than `step` in a folder of checkpoints, and tells.
void leave_newer(const std::filesystem::path& checkpoints, int64_t step);

/// The same in a mirror. Throws Error(checkpoint) where it cannot be written: it would keep what it has, and a later
/// start by `auto` might take that for the newest.
void leave_newer_in_mirror(const std::filesystem::path& mirror, int64_t step);

/// Sets aside what a folder holds of another lineage than the run's, and tells: a mirror that was away when that was
/// left. Never taken up by this run, it would be by one that has lost its folder.
void leave_others(const std::filesystem::path& checkpoints, const checkpoint::Lineage& lineage);

/// The same for all that a mirror holds, where a run starts over; Error(usage) where another run uses it.
void leave_mirror(const std::filesystem::path& mirror);

}  // namespace gputrain::app
