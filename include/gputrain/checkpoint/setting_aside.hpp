// Renames checkpoints so that they are no longer used, without removing them and without LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gputrain/checkpoint/lineage.hpp"

namespace gputrain::checkpoint {

/// Renames a checkpoint to a name that is never read ("step-00000100.bad", or with a number) and returns the new path.
/// Throws Error(checkpoint) if that fails.
std::filesystem::path set_aside(const std::filesystem::path& folder, const std::string& suffix);

struct SetAside {
  std::filesystem::path from, to;
};
/// Renames every checkpoint in `folder` newer than `step`, valid or not, with the suffix "left". Throws
/// Error(checkpoint).
std::vector<SetAside> set_aside_newer(const std::filesystem::path& folder, int64_t step);

/// The same for every checkpoint that has a valid manifest and is outside this lineage.
std::vector<SetAside> set_aside_others(const std::filesystem::path& folder, const Lineage& lineage);

}  // namespace gputrain::checkpoint
