#include "gputrain/data/sample_usage.hpp"

#include "gputrain/core/random.hpp"
#include "gputrain/data/order.hpp"
#include "step_plan.hpp"

namespace gputrain::data {
namespace {

StepPlan plan_of(const OrderFacts& order) {
  const DataPartition alone{.global_batch = order.global_batch, .micro_batch = order.global_batch};
  return {order.samples, alone, order.drop_last};
}

/// Calls `use` with each sample of a batch that is a whole step.
template <typename Use>
void each_sample(const OrderFacts& order, const MicroBatchPlan& batch, Use use) {
  const Permutation permutation = order_of_epoch(order.seed, batch.epoch, order.samples);
  for (int64_t i = 0; i < batch.counted; ++i) {
    const int64_t position = (batch.first_position + i) % order.samples;
    use(order.shuffle ? permutation(position) : position);
  }
}

}  // namespace

uint64_t usage_hash(int64_t epoch, int64_t sample) noexcept {
  return mix(static_cast<uint64_t>(epoch), static_cast<uint64_t>(sample));
}

int64_t steps_per_epoch(const OrderFacts& order) { return plan_of(order).steps_per_epoch(); }

SampleUsage expected_usage(const OrderFacts& order, int64_t begin, int64_t end) {
  const StepPlan plan = plan_of(order);
  SampleUsage usage;
  for (int64_t step = begin; step < end; ++step) {
    const MicroBatchPlan batch = plan.micro_batch(step);
    each_sample(order, batch, [&](int64_t sample) { usage.fingerprint += usage_hash(batch.epoch, sample); });
    usage.samples += batch.counted;
  }
  return usage;
}

StepSamples samples_of_step(const OrderFacts& order, int64_t step) {
  const MicroBatchPlan batch = plan_of(order).micro_batch(step);
  StepSamples of_step{.epoch = batch.epoch, .samples = {}};
  each_sample(order, batch, [&](int64_t sample) { of_step.samples.push_back(sample); });
  return of_step;
}

}  // namespace gputrain::data
