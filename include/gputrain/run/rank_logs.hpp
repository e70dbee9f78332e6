// The ranks' logs in a run folder, once the run goes on from an earlier step.
#pragma once

#include "gputrain/job/run_folder.hpp"
#include "gputrain/setup/assembly.hpp"
#include "gputrain/train/progress.hpp"

namespace gputrain::app {

/// From here on what is said is filed. A rank other than 0 goes on without a log where its disk refuses, and says so;
/// on rank 0 it throws Error(environment), as the rest of the run folder is about to be written there as well.
void open_log(const RunFolder& folder, const Place& place);

/// Cuts this rank's log, and on rank 0 those of ranks that are no more, to what lies before `progress`; the lines cut
/// from its own. A disk that refuses is told, and leaves them as they are. The log is open before and after.
int64_t cut_logs(const RunFolder& folder, const Place& place, const train::Progress& progress);

}  // namespace gputrain::app
