// Some optimizer steps as a run takes them, timed one by one.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "gputrain/setup/assembly.hpp"
#include "gputrain/train/step.hpp"

namespace gputrain::app {

struct Timing {
  train::BatchPlan batch;  // of these steps
  int64_t warmup = 2;      // steps that are not measured: they choose kernels and fill the allocator
  int64_t steps = 3;
  double enough_seconds = std::numeric_limits<double>::infinity();  // after the first step no other is begun

  bool evaluates = false;  // one pass at the end, as a run's evaluations, beside all that its steps keep

  /// Whether steps are replayed where a run's are: the one that is recorded must not be among those that count.
  bool records() const noexcept { return warmup > train::Step::kStepsBeforeRecording; }
};

struct TimedSteps {
  std::vector<double> seconds;             // of each measured step
  std::vector<double> samples_per_second;  // of this rank in each of them
  int64_t peak_bytes = 0;                  // that tensors held at one time, those that the assembly holds included
  double first_loss = 0, last_loss = 0;    // means over the targets, of the first step and of the last one

  double median_rate() const;
};

/// Of a list that is not empty; of two in the middle their mean.
double median(std::vector<double> values);

/// Changes weights and optimizer state as any steps do. Reads the training data from its beginning.
TimedSteps time_steps(const Job& job, Assembly& assembly, const Timing& timing);

}  // namespace gputrain::app
