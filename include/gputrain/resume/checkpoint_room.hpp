// Whether the disks on which a job saves can hold what it saves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// Of the disk under a folder that need not be there yet; empty: not known.
std::optional<int64_t> free_bytes_below(const std::filesystem::path& folder);

/// The tensors of one checkpoint, as all ranks together write it. Every rank must call.
int64_t checkpoint_bytes(TrainingSetup& setup);

/// What to throw or to tell where the disk of the run folder, or of the mirror, has no room for one checkpoint, or none
/// for the next one beside those that are kept.
struct DiskShortage {
  bool for_one;
  Error error;
};

/// Every rank must call; rank 0 is answered.
std::vector<DiskShortage> disks_too_small(const Job& job, TrainingSetup& setup);

}  // namespace gputrain::app
