// Taking checkpoints out of the way without removing them, and without LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gputrain/checkpoint/lineage.hpp"

namespace gputrain::checkpoint {

/// Takes a checkpoint out of the way under a name that is never read, "step-00000100.bad" or with a number, and returns
/// it. Throws Error(checkpoint) when it cannot.
std::filesystem::path set_aside(const std::filesystem::path& folder, const std::string& suffix);

struct SetAside {
  std::filesystem::path from, to;
};
/// Sets aside, as `left`, every checkpoint in `folder` that is newer than `step`, good or not. Throws
/// Error(checkpoint).
std::vector<SetAside> set_aside_newer(const std::filesystem::path& folder, int64_t step);

/// The same for every one that is not of this lineage.
std::vector<SetAside> set_aside_others(const std::filesystem::path& folder, const Lineage& lineage);

}  // namespace gputrain::checkpoint
