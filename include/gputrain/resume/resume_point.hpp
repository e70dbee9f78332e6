// Which checkpoint a run goes on from, of its own and of those in its mirror, and in which branch it saves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/checkpoint/store.hpp"
#include "gputrain/comm/process_groups.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {

struct ResumePoint {
  int64_t branch = 1;                          // the run saves in it
  std::vector<std::filesystem::path> folders;  // of this branch: the run's own, then the mirror's
  std::string path;                            // the checkpoint to begin with; empty: the newest good one in `folders`
};

/// Follows `checkpoint.resume`: a path begins a new branch where there are checkpoints, unless it is that of the newest
/// one. `auto` and `must` go on in the newest branch; where nothing was saved in that, they begin with the checkpoint
/// that it was to begin with.
ResumePoint resume_point_of(const Job& job);

/// Rank 0's, on every rank. Every rank must call.
ResumePoint agreed_resume_point(const Job& job, comm::ProcessGroups& groups);

/// The checkpoint that a start would go on from, looked for without a trace by one process; `read` says how deep.
/// Throws what a start would, where there is none but must be, or none is good.
std::optional<checkpoint::Checkpoint> look_for_checkpoint(const Job& job, const checkpoint::Read& read);

/// Throws Error(checkpoint) where `checkpoint.resume` is `must`, as none was found.
void refuse_if_must(const Job& job);

/// The checkpoint at a path that a user gave; `read` reads it. Throws Error(checkpoint) where there is none, and says
/// what might be meant.
checkpoint::Checkpoint read_given(const std::filesystem::path& path, const checkpoint::Read& read);

/// The same on every rank, which must have the same checkpoint there. Every rank must call.
checkpoint::Checkpoint read_given(const std::filesystem::path& path, comm::ProcessGroups& groups,
                                  const checkpoint::Read& read);

/// The newest one in the point's folders that is good on every rank. The one returned is what `read` was called for
/// last, on each rank: nobody goes on from somewhere else. Names what is not good, and takes out of the way what rank 0
/// has found damaged. Throws Error(checkpoint) when there are checkpoints but none is good, and when one that is good
/// on rank 0 cannot be read on another rank. Every rank must call.
std::optional<checkpoint::Checkpoint> newest_good(const Job& job, comm::ProcessGroups& groups, const ResumePoint& point,
                                                  const checkpoint::Read& read);

}  // namespace gputrain::app
