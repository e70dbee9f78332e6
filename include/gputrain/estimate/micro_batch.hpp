// Search for train.micro_batch_size: auto. Before training, takes real steps with one micro-batch size after the other.
// The run then uses the fastest one that fits on every rank.
#pragma once

#include <cstdint>
#include <optional>

#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// Returns the micro-batch that the run in the job's folder found last, even for another machine or job.
std::optional<int64_t> found_before(const Job& job);

/// Searches, or takes the result of an earlier attempt for the same job and devices. Restores random generators and
/// releases memory afterwards. Throws Error(environment) if not even one sample fits. Every rank must call it.
MicroBatchChoice choose_micro_batch(const Job& job, RankContext& context, const JobDatasets& datasets);

/// Returns a copy of the job with train.micro_batch_size set to `micro_batch`.
Job with_micro_batch(const Job& job, int64_t micro_batch);

}  // namespace gputrain::app
