// Which samples training used, as sums independent of order and ranks: a run records them and an audit checks them.
#pragma once

#include <cstdint>
#include <vector>

namespace gputrain::data {

/// Number of samples used, and the sum modulo 2^64 of usage_hash() of each: it changes if a sample is missing, repeated
/// or replaced by another.
struct SampleUsage {
  int64_t samples = 0;
  uint64_t fingerprint = 0;
  int64_t unreadable = 0;  // of `samples`: skipped because they could not be read

  void add(const SampleUsage& other) noexcept {
    samples += other.samples;
    fingerprint += other.fingerprint;
    unreadable += other.unreadable;
  }
  friend bool operator==(const SampleUsage&, const SampleUsage&) = default;
};

uint64_t usage_hash(int64_t epoch, int64_t sample) noexcept;

/// All that determines the order of samples.
struct OrderFacts {
  int64_t samples = 1;  // in the data set
  int64_t global_batch = 1;
  uint64_t seed = 0;  // LoaderOptions::seed
  bool shuffle = true;
  bool drop_last = false;
};

/// This and the functions below throw for an impossible order, for instance one without samples.
int64_t steps_per_epoch(const OrderFacts& order);

/// The usage of optimizer steps [begin, end), counted from the start of training. O(samples used) time, no memory.
SampleUsage expected_usage(const OrderFacts& order, int64_t begin, int64_t end);

/// The samples of one optimizer step, over all ranks; steps count from 0.
struct StepSamples {
  int64_t epoch = 0;
  std::vector<int64_t> samples;  // dataset indices, in the order they are used
};
StepSamples samples_of_step(const OrderFacts& order, int64_t step);

}  // namespace gputrain::data
