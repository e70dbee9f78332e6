// The log files of the ranks in a run folder.
#pragma once

#include "gputrain/job/run_folder.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/progress.hpp"

namespace gputrain::app {

/// Starts writing log messages to this rank's file. If its disk refuses, a rank other than 0 warns and continues
/// without a log; rank 0 throws Error(environment), because the other files of the run folder go to the same disk.
void open_log(const RunFolder& folder, const RankContext& context);

/// Moves the lines about steps after `progress` out of this rank's log, and on rank 0 also out of the logs of ranks
/// that no longer exist. Returns the number of lines moved from its own log. If the disk refuses, warns and leaves the
/// logs unchanged. The log is open before and after.
int64_t truncate_logs(const RunFolder& folder, const RankContext& context, const train::Progress& progress);

}  // namespace gputrain::app
