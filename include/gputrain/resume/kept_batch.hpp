// A run that goes on keeps its global batch, on however many ranks: micro-batches only say how it is divided.
#pragma once

#include <cstdint>

#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/plan.hpp"

namespace gputrain::app {

/// Samples per optimizer step of the checkpoint that the run will go on from, as far as manifests and sizes tell now; 0
/// if there is none, or the job names its global batch itself, or another accumulation than before. Every rank must
/// call.
int64_t kept_global_batch(const Job& job, RankContext& context);

/// Warns if it differs from the global batch by the job's keys.
void tell_of_kept_batch(const train::BatchPlan& batch);

}  // namespace gputrain::app
