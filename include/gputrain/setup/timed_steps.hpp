// Timer of single optimizer steps, with the code of real runs.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/step.hpp"

namespace gputrain::app {

struct Timing {
  train::BatchPlan batch;  // batch of these steps
  int64_t warmup = 2;      // unmeasured steps: they choose kernels and fill the allocator
  int64_t steps = 3;
  double enough_seconds = std::numeric_limits<double>::infinity();  // limit for new steps, since the first step

  bool evaluates = false;  // true: evaluates one pass at the end, with the memory of the steps still allocated

  /// Returns whether steps use CUDA graphs as in a run: only if the capture step is one of the warmup steps.
  bool records() const noexcept { return warmup > train::Step::kPassesBeforeCapture; }
};

struct TimedSteps {
  std::vector<double> seconds;             // seconds of each measured step
  std::vector<double> samples_per_second;  // rate of this rank, in each measured step
  int64_t peak_bytes = 0;                  // peak of all tensors, including those of the assembly
  double first_loss = 0, last_loss = 0;    // means over the targets, of the first and the last step

  double median_rate() const;
};

/// Returns the median; for an even size, the mean of the two middle values. The list must not be empty.
double median(std::vector<double> values);

/// Takes real steps, which change weights and optimizer state. Reads the training data from its beginning.
TimedSteps time_steps(const Job& job, TrainingSetup& setup, const Timing& timing);

}  // namespace gputrain::app
