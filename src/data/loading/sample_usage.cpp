#include "gputrain/data/sample_usage.hpp"

#include <algorithm>

#include "gputrain/core/random.hpp"
#include "gputrain/data/order.hpp"
#include "step_plan.hpp"

namespace gputrain::data {
namespace {

StepPlan plan_of(const OrderFacts& order) {
  const DataPartition alone{.global_batch = order.global_batch, .micro_batch = order.global_batch};
  return {order.samples, alone, order.drop_last, order.from};
}

/// Calls `use` with each sample from `begin` on.
template <typename Use>
void each_sample(const OrderFacts& order, Position begin, int64_t count, Use use) {
  const SampleOrder sample(order.seed, begin.epoch, order.samples, order.shuffle, order.repeats);
  for (int64_t position = begin.samples; position < begin.samples + count; ++position) use(sample(position));
}

SampleUsage usage_of(const OrderFacts& order, Position begin, int64_t count) {
  SampleUsage usage{.samples = count};
  each_sample(order, begin, count, [&](int64_t sample) { usage.fingerprint += usage_hash(begin.epoch, sample); });
  return usage;
}

Position begin_of(const MicroBatchPlan& batch) { return {.epoch = batch.epoch, .samples = batch.first_position}; }

}  // namespace

uint64_t usage_hash(int64_t epoch, int64_t sample) noexcept {
  return mix(static_cast<uint64_t>(epoch), static_cast<uint64_t>(sample));
}

bool is_reachable(const OrderFacts& order) noexcept {
  constexpr int64_t kMostSamples = int64_t{1} << 55;  // maximum of samples that a whole run uses
  const auto& [epoch, samples] = order.from;
  const bool is_in_epoch = samples >= 0 && samples <= order.samples;
  return order.repeats >= 1 && order.first_step >= 0 && is_in_epoch && epoch >= 0 &&
         epoch < kMostSamples / std::max<int64_t>(1, order.samples);
}

int64_t steps_per_epoch(const OrderFacts& order) { return plan_of(order).steps_per_epoch(); }

int64_t uniform_step(const OrderFacts& order, int64_t step) {
  return plan_of(order).steps_before() + step - order.first_step;
}

Position position_after(const OrderFacts& order, int64_t step) {
  return begin_of(plan_of(order).micro_batch(step - order.first_step));
}

SampleUsage expected_usage(const OrderFacts& order, int64_t begin, int64_t end) {
  const StepPlan plan = plan_of(order);
  SampleUsage usage;
  for (int64_t step = std::max(begin, order.first_step); step < end; ++step) {
    const MicroBatchPlan batch = plan.micro_batch(step - order.first_step);
    usage.add(usage_of(order, begin_of(batch), batch.counted));
  }
  return usage;
}

SampleUsage usage_before(const OrderFacts& order, Position end) {
  const int64_t whole = order.drop_last ? steps_per_epoch(order) * order.global_batch : order.samples;
  SampleUsage usage = usage_of(order, {.epoch = end.epoch}, end.samples);
  for (int64_t epoch = 0; epoch < end.epoch; ++epoch) usage.add(usage_of(order, {.epoch = epoch}, whole));
  return usage;
}

StepSamples samples_of_step(const OrderFacts& order, int64_t step) {
  const MicroBatchPlan batch = plan_of(order).micro_batch(step - order.first_step);
  StepSamples of_step{.epoch = batch.epoch, .samples = {}};
  each_sample(order, begin_of(batch), batch.counted, [&](int64_t sample) { of_step.samples.push_back(sample); });
  return of_step;
}

}  // namespace gputrain::data
