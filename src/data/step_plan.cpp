#include "step_plan.hpp"

#include <algorithm>
#include <string>

#include "gputrain/core/error.hpp"

namespace gputrain::data {
namespace {

constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

StepPlan::StepPlan(int64_t samples, const Share& share, bool drop_last)
    : samples_(samples), global_batch_(share.global_batch) {
  GPUTRAIN_ASSERT(share.world_size >= 1 && share.rank >= 0 && share.rank < share.world_size, "rank outside the world");
  GPUTRAIN_ASSERT(share.micro_batch >= 1, "empty micro-batches");
  if (samples < 1) throw Error(ExitCode::data, {.what = "the data has no samples"});
  if (global_batch_ < share.world_size)
    throw Error(ExitCode::usage, {.what = "a global batch of " + std::to_string(global_batch_) + " leaves some of " +
                                          std::to_string(share.world_size) + " ranks without a sample",
                                  .hint = "raise train.global_batch_size"});
  share_begin_ = global_batch_ * share.rank / share.world_size;
  share_end_ = global_batch_ * (share.rank + 1) / share.world_size;
  rows_per_step_ = ceil_divide(global_batch_, share.world_size);
  micro_batches_ = ceil_divide(rows_per_step_, share.micro_batch);
  steps_per_epoch_ = drop_last ? samples / global_batch_ : ceil_divide(samples, global_batch_);
  if (steps_per_epoch_ == 0)
    throw Error(ExitCode::data, {.what = "the data has " + std::to_string(samples) +
                                         " samples, fewer than one global batch of " + std::to_string(global_batch_),
                                 .hint = "data.last: pad, or a smaller train.global_batch_size"});
}

int64_t StepPlan::most_rows() const noexcept { return ceil_divide(rows_per_step_, micro_batches_); }

MicroBatchPlan StepPlan::micro_batch(int64_t index) const noexcept {
  const int64_t step = index / micro_batches_, part = index % micro_batches_;
  const int64_t row_begin = rows_per_step_ * part / micro_batches_;
  const int64_t row_end = rows_per_step_ * (part + 1) / micro_batches_;
  MicroBatchPlan plan;
  plan.epoch = step / steps_per_epoch_;
  plan.first_position = step % steps_per_epoch_ * global_batch_ + share_begin_ + row_begin;
  plan.rows = row_end - row_begin;
  const int64_t left_in_share = share_end_ - share_begin_ - row_begin;
  plan.counted = std::clamp(std::min(left_in_share, samples_ - plan.first_position), int64_t{0}, plan.rows);
  return plan;
}

}  // namespace gputrain::data
