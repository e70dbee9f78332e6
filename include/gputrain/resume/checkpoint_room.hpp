// Whether the disks on which a job saves can hold what it saves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// Returns the free space of the disk under a folder that need not exist yet; empty: not known.
std::optional<int64_t> free_bytes_below(const std::filesystem::path& folder);

/// Returns the size of the tensors of one checkpoint, which all ranks write together. Every rank must call.
int64_t checkpoint_bytes(TrainingSetup& setup);

/// An error or warning about the disk of the run folder, or of the mirror: it has no room for one checkpoint, or none
/// for the next one beside those that are kept.
struct DiskShortage {
  bool for_one;
  Error error;
};

/// Returns the shortages on rank 0. Every rank must call.
std::vector<DiskShortage> disks_too_small(const Job& job, TrainingSetup& setup);

}  // namespace gputrain::app
