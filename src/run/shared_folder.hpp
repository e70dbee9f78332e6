// Whether the ranks have one run folder in common.
#pragma once

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Throws Error(environment) when a rank that writes parts of checkpoints does not see the run folder of rank 0, and
/// Error(checkpoint) when such a rank has a newer checkpoint in a folder of its own, which the run would not go on
/// from. Warns when a rank does not see the folder and rank 0 alone writes. Leaves nothing behind. Every rank must
/// call.
void check_run_folder_is_shared(const Job& job, comm::ProcessGroups& groups);

}  // namespace gputrain::app
