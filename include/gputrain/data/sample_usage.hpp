// Samples that training used, as sums independent of order and ranks: a run records them and an audit checks them.
#pragma once

#include <cstdint>
#include <vector>

#include "gputrain/data/order.hpp"

namespace gputrain::data {

/// Number of samples used, and the sum modulo 2^64 of usage_hash() of each: it changes if a sample is missing, repeated
/// or replaced by another.
struct SampleUsage {
  int64_t samples = 0;
  uint64_t fingerprint = 0;
  int64_t unreadable = 0;  // skipped ones of `samples`, which could not be read

  void add(const SampleUsage& other) noexcept {
    samples += other.samples;
    fingerprint += other.fingerprint;
    unreadable += other.unreadable;
  }
  friend bool operator==(const SampleUsage&, const SampleUsage&) = default;
};

uint64_t usage_hash(int64_t epoch, int64_t sample) noexcept;

/// Facts that determine which samples a step uses. Steps count from the start of training; the functions below know
/// those from `first_step` on, which have this global batch.
struct OrderFacts {
  int64_t samples = 1;  // number of samples in the dataset
  int64_t global_batch = 1;
  uint64_t seed = 0;  // LoaderOptions::seed
  bool shuffle = true;
  bool drop_last = false;
  int64_t repeats = 1;  // LoaderOptions::repeats
  int64_t first_step = 0;
  Position from = {};  // position at first_step
};

/// Returns whether a run can stand at `from` after `first_step` steps; the functions below assume it.
bool is_reachable(const OrderFacts& order) noexcept;

/// Counts the steps. Throws, like the functions below, for an impossible order, for instance one without samples.
int64_t steps_per_epoch(const OrderFacts& order);

/// Returns the step that a run with this global batch from the start would be at instead of `step`: the same if the
/// global batch has never changed. Whole epochs give whole multiples of steps_per_epoch().
int64_t uniform_step(const OrderFacts& order, int64_t step);

/// Returns the position of training after `step` steps.
Position position_after(const OrderFacts& order, int64_t step);

/// Returns the usage of optimizer steps [begin, end). O(samples used) time, no memory.
SampleUsage expected_usage(const OrderFacts& order, int64_t begin, int64_t end);

/// Returns the usage of all steps before `end`, whatever their sizes; with drop_last, each epoch ends as steps of this
/// global batch end it.
SampleUsage usage_before(const OrderFacts& order, Position end);

/// The samples of one optimizer step, over all ranks.
struct StepSamples {
  int64_t epoch = 0;
  std::vector<int64_t> samples;  // dataset indices, in the order they are used
};
StepSamples samples_of_step(const OrderFacts& order, int64_t step);

}  // namespace gputrain::data
