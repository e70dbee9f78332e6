#include "gputrain/data/epoch_shares.hpp"

#include <algorithm>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/data/order.hpp"
#include "step_plan.hpp"

namespace gputrain::data {
namespace {

constexpr int64_t kMostLookedUp = int64_t{1} << 26;  // takes a few seconds

std::vector<StepPlan> plans_of(const OrderFacts& order, DataPartition partition) {
  std::vector<StepPlan> plans;
  plans.reserve(static_cast<size_t>(partition.world_size));
  for (partition.rank = 0; partition.rank < partition.world_size; ++partition.rank) {
    plans.emplace_back(order.samples, partition, order.drop_last);
  }
  return plans;
}

EpochShares::Spread spread_of(const std::vector<int64_t>& counts) {
  const auto [fewest, most] = std::minmax_element(counts.begin(), counts.end());
  return {.fewest = *fewest, .most = *most};
}

/// Marks of the samples that all ranks take.
class TakenSamples {
 public:
  explicit TakenSamples(const OrderFacts& order)
      : order_(order), sample_(order.seed, 0, order.samples, order.shuffle, order.repeats) {
    if (order.samples <= kMostLookedUp) taken_.resize(static_cast<size_t>(order.samples));
  }

  bool looks_up() const noexcept { return !taken_.empty(); }
  int64_t used() const noexcept { return used_; }

  std::vector<int64_t> take(const std::vector<StepPlan>& plans, int64_t step) {
    int64_t next = step * order_.global_batch;  // positions are consecutive by micro-batch, then by rank
    std::vector<int64_t> counts(plans.size());
    const int64_t micro_batches = plans.front().micro_batches_per_step();
    for (int64_t i = step * micro_batches; i < (step + 1) * micro_batches; ++i) {
      for (size_t rank = 0; rank < plans.size(); ++rank) {
        const MicroBatchPlan batch = plans[rank].micro_batch(i);
        GPUTRAIN_ASSERT(batch.epoch == 0, "a step of the first epoch");
        counts[rank] += batch.counted;
        used_ += batch.counted;
        for (int64_t position = batch.first_position; position < batch.first_position + batch.counted; ++position) {
          GPUTRAIN_ASSERT(position == next++ && position < order_.samples, "two ranks or none take a position");
          if (looks_up() && sample_.copy(position) == 0) mark(sample_(position));
        }
      }
    }
    return counts;
  }

 private:
  void mark(int64_t sample) {
    const auto index = static_cast<size_t>(sample);
    GPUTRAIN_ASSERT(index < taken_.size() && !taken_[index], "a sample is taken twice");
    taken_[index] = true;
  }

  const OrderFacts& order_;
  SampleOrder sample_;
  std::vector<bool> taken_;  // marks by sample; empty: too many samples
  int64_t used_ = 0;
};

}  // namespace

EpochShares walk_epoch(const OrderFacts& order, const DataPartition& partition) {
  const auto plans = plans_of(order, partition);
  TakenSamples taken(order);
  EpochShares shares{.steps = plans.front().steps_per_epoch(),
                     .most_rows = plans.front().most_rows(),
                     .repeats = order.repeats,
                     .each_looked_up = taken.looks_up()};
  std::vector<int64_t> in_epoch(plans.size()), counts;
  for (int64_t step = 0; step < shares.steps; ++step) {
    const bool is_last = step + 1 == shares.steps;
    const bool is_like_the_first = !taken.looks_up() && step > 0 && !is_last;
    if (is_like_the_first) {  // only the last step can be partial
      for (size_t rank = 0; rank < plans.size(); ++rank) in_epoch[rank] += counts[rank] * (shares.steps - 2);
      shares.used += taken.used() * (shares.steps - 2);
      step = shares.steps - 2;
      continue;
    }
    counts = taken.take(plans, step);
    for (size_t rank = 0; rank < plans.size(); ++rank) in_epoch[rank] += counts[rank];
    if (step == 0) shares.in_step = spread_of(counts);
  }
  shares.used += taken.used();
  for (const int64_t count : counts) shares.in_last_step += count, shares.idle_in_last_step += count == 0;
  shares.in_epoch = spread_of(in_epoch);
  const int64_t whole = order.drop_last ? shares.steps * order.global_batch : order.samples;
  GPUTRAIN_ASSERT(shares.used == whole, "an epoch uses each sample");
  return shares;
}

}  // namespace gputrain::data
