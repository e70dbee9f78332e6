// The checkpoint from which a run goes on, one of its own or of its mirror, and the branch in which it saves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/checkpoint/store.hpp"
#include "gputrain/comm/process_groups.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {

struct ResumePoint {
  int64_t branch = 1;                          // the run saves in it
  std::vector<std::filesystem::path> folders;  // folders of this branch: the run's own, then the mirror's
  std::string path;                            // the checkpoint to begin with; empty: the newest good one in `folders`
};

/// Follows `checkpoint.resume`. A path begins a new branch if there are checkpoints, unless it is the path of the
/// newest one. `auto` and `must` go on in the newest branch; if nothing was saved in it, they begin with the checkpoint
/// with which it was to begin.
ResumePoint resume_point_of(const Job& job);

/// Returns rank 0's point on every rank. Every rank must call.
ResumePoint agreed_resume_point(const Job& job, comm::ProcessGroups& groups);

/// Returns the checkpoint from which a start would go on. One process looks for it, and leaves no trace; `read` decides
/// how much it reads. Throws the error of a start if there must be a checkpoint and is none, or none is good.
std::optional<checkpoint::Checkpoint> look_for_checkpoint(const Job& job, const checkpoint::Read& read);

/// Throws Error(checkpoint), because no checkpoint was found, if `checkpoint.resume` is `must`.
void refuse_if_must(const Job& job);

/// Reads the checkpoint at a user's path by `read`. Throws Error(checkpoint) if there is none, and says what might be
/// meant.
checkpoint::Checkpoint read_given(const std::filesystem::path& path, const checkpoint::Read& read);

/// Does the same on every rank; all must have the same checkpoint there. Every rank must call.
checkpoint::Checkpoint read_given(const std::filesystem::path& path, comm::ProcessGroups& groups,
                                  const checkpoint::Read& read);

/// Copies a checkpoint of the run folder into the mirror, on rank 0, while other ranks wait.
enum class CopyResult { made, was_there, failed };
using CopyNow = std::function<CopyResult(const std::filesystem::path& checkpoint)>;

/// Returns the newest checkpoint in the point's folders that is good on every rank. It is the last one for which `read`
/// was called, on each rank. Ranks that do not share the run folder read its copy in the mirror; if that is missing,
/// `copy` makes it. Names those that are not good, and sets aside those that rank 0 has found damaged. Throws
/// Error(checkpoint) when there are checkpoints but none is good, and when one that is good on rank 0 cannot be read on
/// another rank. Every rank must call.
std::optional<checkpoint::Checkpoint> newest_good(const Job& job, comm::ProcessGroups& groups, const ResumePoint& point,
                                                  const checkpoint::Read& read, const CopyNow& copy);

}  // namespace gputrain::app
