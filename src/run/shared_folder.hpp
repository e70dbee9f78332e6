// What hosts must have in common: the run folder, the mirror, the data.
#pragma once

#include "gputrain/job/job.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// Looks, on every rank, for a mark that rank 0 leaves for a moment in the run folder and in the mirror, and for the
/// paths of data and weights. Throws Error(usage) when a rank that writes parts of checkpoints does not see the run
/// folder of rank 0, Error(checkpoint) when a rank that does not see it has a newer checkpoint in a folder of its own,
/// which the run would not go on from, and Error(data) when some ranks have a path of data or weights and others not.
/// Warns when a rank does not see the run folder and rank 0 alone writes, or does not see the mirror. One host pays one
/// broadcast. Every rank must call.
void check_what_hosts_share(const Job& job, RankContext& context);

/// Compares data sets of all ranks. Throws Error(data) when they differ in the number of samples, in classes or tokens,
/// and warns of other content, of which one rank of each host reads pieces. Every rank must call.
void check_data_is_the_same(const JobDatasets& datasets, RankContext& context);

}  // namespace gputrain::app
