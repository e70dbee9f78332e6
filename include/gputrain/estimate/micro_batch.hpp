// train.micro_batch_size: auto. Before training, steps as a run takes them are tried with one micro-batch after the
// other; the fastest that fits on every rank is the job's from then on.
#pragma once

#include <cstdint>
#include <optional>

#include "gputrain/setup/assembly.hpp"

namespace gputrain::app {

/// What the run in the job's folder has found last, whatever for.
std::optional<int64_t> found_before(const Job& job);

/// Tries, or takes what an earlier attempt has found for the same. The place is left as it was, its random numbers
/// included. Throws Error(environment) when not even one sample fits. Every rank must call.
MicroBatchChoice choose_micro_batch(const Job& job, Place& place, const Datasets& datasets);

/// The job that says so itself.
Job with_micro_batch(const Job& job, int64_t micro_batch);

}  // namespace gputrain::app
