#include "step_plan.hpp"

#include <algorithm>
#include <string>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::data {

StepPlan::StepPlan(int64_t samples, const DataPartition& partition, bool drop_last, Position from)
    : samples_(samples), global_batch_(partition.global_batch), rank_(partition.rank), ranks_(partition.world_size) {
  GPUTRAIN_ASSERT(partition.world_size >= 1 && partition.rank >= 0 && partition.rank < partition.world_size,
                  "rank outside the world");
  GPUTRAIN_ASSERT(partition.micro_batch >= 1, "empty micro-batches");
  if (samples < 1) throw Error(ExitCode::data, {.what = "the data has no samples"});
  if (global_batch_ < partition.world_size)
    throw Error(ExitCode::usage, {.what = "a global batch of " + std::to_string(global_batch_) + " leaves some of " +
                                          std::to_string(partition.world_size) + " ranks without a sample",
                                  .hint = "raise train.global_batch_size"});
  micro_batches_ = ceil_divide(global_batch_, partition.micro_batch * ranks_);
  steps_per_epoch_ = drop_last ? samples / global_batch_ : ceil_divide(samples, global_batch_);
  if (steps_per_epoch_ == 0)
    throw Error(ExitCode::data, {.what = "the data has " + counted(samples, "sample") +
                                         ", fewer than one global batch of " + std::to_string(global_batch_),
                                 .hint = "data.last: pad, or a smaller train.global_batch_size"});
  const int64_t left = std::max<int64_t>(0, samples - from.samples);
  const int64_t steps_left = drop_last ? left / global_batch_ : ceil_divide(left, global_batch_);
  steps_before_ = (from.epoch + 1) * steps_per_epoch_ - steps_left;
  begun_epoch_ = from.epoch;
  begun_shift_ = from.samples - (steps_per_epoch_ - steps_left) * global_batch_;
}

int64_t StepPlan::most_rows() const noexcept { return ceil_divide(ceil_divide(global_batch_, micro_batches_), ranks_); }

StepPlan::Positions StepPlan::positions_of_step(int64_t index) const noexcept {
  const int64_t step = steps_before_ + index / micro_batches_;
  const int64_t shift = step / steps_per_epoch_ == begun_epoch_ ? begun_shift_ : 0;
  const int64_t begin = step % steps_per_epoch_ * global_batch_ + shift;
  return {begin, std::min(begin + global_batch_, samples_)};
}

MicroBatchPlan StepPlan::micro_batch(int64_t index) const noexcept {
  const int64_t step = steps_before_ + index / micro_batches_, part = index % micro_batches_;
  const int64_t begin = global_batch_ * part / micro_batches_;
  const int64_t on_all_ranks = global_batch_ * (part + 1) / micro_batches_ - begin;
  const int64_t own_begin = on_all_ranks * rank_ / ranks_, own_end = on_all_ranks * (rank_ + 1) / ranks_;
  MicroBatchPlan plan;
  plan.epoch = step / steps_per_epoch_;
  plan.first_in_step = begin;
  const int64_t first_position = positions_of_step(index).begin + begin;
  plan.first_position = first_position + own_begin;
  plan.rows = ceil_divide(on_all_ranks, ranks_);
  plan.counted = std::clamp(std::min(own_end - own_begin, samples_ - plan.first_position), int64_t{0}, plan.rows);
  plan.counted_on_all_ranks = std::clamp(samples_ - first_position, int64_t{0}, on_all_ranks);
  return plan;
}

}  // namespace gputrain::data
