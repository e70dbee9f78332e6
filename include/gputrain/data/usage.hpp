// Which samples training has used, as sums that neither order nor ranks change: what a run records and an audit proves.
#pragma once

#include <cstdint>
#include <vector>

namespace gputrain::data {

/// Samples used, and the sum modulo 2^64 of usage_hash() of each: a sample left out, used twice or exchanged for
/// another changes it.
struct Usage {
  int64_t samples = 0;
  uint64_t fingerprint = 0;
  int64_t unreadable = 0;  // of the samples: skipped, their positions used up

  void add(const Usage& other) noexcept {
    samples += other.samples;
    fingerprint += other.fingerprint;
    unreadable += other.unreadable;
  }
  friend bool operator==(const Usage&, const Usage&) = default;
};

uint64_t usage_hash(int64_t epoch, int64_t sample) noexcept;

/// All that the order of samples depends on.
struct OrderFacts {
  int64_t samples = 1;  // in the data set
  int64_t global_batch = 1;
  uint64_t seed = 0;  // as in LoaderOptions
  bool shuffle = true;
  bool drop_last = false;
};

/// This and what follows throw where no such order can be, as one without samples.
int64_t steps_per_epoch(const OrderFacts& order);

/// What the optimizer steps [begin, end) use, counted from the start of training. O(samples used), without memory.
Usage expected_usage(const OrderFacts& order, int64_t begin, int64_t end);

/// What one optimizer step is made of, over all ranks; steps count from 0.
struct StepSamples {
  int64_t epoch = 0;
  std::vector<int64_t> samples;  // in the data set, in the order they are used
};
StepSamples samples_of_step(const OrderFacts& order, int64_t step);

}  // namespace gputrain::data
