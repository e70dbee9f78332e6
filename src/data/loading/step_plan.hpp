// Positions of an epoch that a micro-batch holds: pure arithmetic, the same on every rank.
#pragma once

#include <cstdint>

#include "gputrain/data/loader.hpp"
#include "gputrain/data/order.hpp"

namespace gputrain::data {

/// Rows of one micro-batch on this rank. Row i is the sample at position (first_position + i) modulo the number of
/// samples; the first `counted` rows count, the others are padding.
struct MicroBatchPlan {
  int64_t epoch = 0;
  int64_t first_position = 0;
  int64_t rows = 0;
  int64_t counted = 0;
  int64_t counted_on_all_ranks = 0;
  int64_t first_in_step = 0;  // place in its step of the micro-batch's first sample on all ranks
};

class StepPlan {
 public:
  /// Plans steps from `from` on.
  StepPlan(int64_t samples, const DataPartition& partition, bool drop_last, Position from = {});

  int64_t steps_per_epoch() const noexcept { return steps_per_epoch_; }
  /// Returns the steps that a run with this global batch from the start would have taken until `from`. The steps of an
  /// epoch that was begun with another global batch are counted from its end.
  int64_t steps_before() const noexcept { return steps_before_; }
  bool ends_epoch(int64_t step) const noexcept { return (steps_before_ + step + 1) % steps_per_epoch_ == 0; }
  int64_t micro_batches_per_step() const noexcept { return micro_batches_; }
  int64_t most_rows() const noexcept;

  /// Returns micro-batch `index`, counted from `from`; its step is index / micro_batches_per_step().
  MicroBatchPlan micro_batch(int64_t index) const noexcept;

  /// Positions [begin, end) of the epoch that the step of micro-batch `index` takes, over all ranks.
  struct Positions {
    int64_t begin = 0, end = 0;
  };
  Positions positions_of_step(int64_t index) const noexcept;

 private:
  int64_t samples_;
  int64_t global_batch_;
  int64_t rank_, ranks_;
  int64_t micro_batches_;
  int64_t steps_per_epoch_;
  int64_t steps_before_;
  int64_t begun_epoch_, begun_shift_;  // epoch of `from`, and the shift of its remaining positions from the usual ones
};

}  // namespace gputrain::data
