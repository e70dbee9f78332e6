// Which checkpoint a run goes on from, of its own and of those in its mirror.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "gputrain/checkpoint/store.hpp"
#include "gputrain/comm/process_groups.hpp"
#include "gputrain/job/run_folder.hpp"

namespace gputrain::app {

/// The lineage that the run goes on with: what its ledger says, or what of the checkpoints that there are has branched
/// off that, or off others where the ledger says nothing; `mirror` may be empty.
checkpoint::Lineage lineage_of(const RunFolder& run, const std::optional<std::filesystem::path>& mirror);

/// Throws Error(checkpoint) where there are checkpoints after all: none of them is good, or of the store's lineage.
void refuse_to_start_over(const checkpoint::CheckpointStore& own, const checkpoint::CheckpointStore::Search& in_vain);

/// Throws Error(checkpoint) where `checkpoint.resume` is `must`, as none was found.
void refuse_if_must(const std::string& resume, const checkpoint::CheckpointStore& own);

/// Throws Error(checkpoint) where the last start was from a checkpoint elsewhere that the run does not have yet: it
/// would start over, or from an older one.
void refuse_if_not_begun(const RunFolder& run);

/// Throws Error(checkpoint) where `checkpoint.resume` is a path that is none, and says what might be meant.
void check_is_checkpoint(const std::filesystem::path& path);

/// A checkpoint that `read` can read. Throws what it throws.
checkpoint::Checkpoint read_from(const std::filesystem::path& folder, const checkpoint::CheckpointStore::Read& read);

/// The newest one of both folders that is good on every rank, of equals the run's own; `mirror` may be null. The one
/// returned is what `read` was called for last, on each rank: nobody goes on from somewhere else. Names what is not
/// good, and takes it out of the way. Throws Error(checkpoint) when there are checkpoints but none is good. Every rank
/// must call.
std::optional<checkpoint::Checkpoint> newest_good(comm::ProcessGroups& groups, const checkpoint::CheckpointStore& own,
                                                  const checkpoint::CheckpointStore* mirror,
                                                  const checkpoint::CheckpointStore::Read& read);

}  // namespace gputrain::app
