#include "gputrain/data/usage.hpp"

#include "gputrain/core/random.hpp"
#include "gputrain/data/order.hpp"
#include "step_plan.hpp"

namespace gputrain::data {
namespace {

StepPlan plan_of(const OrderFacts& order) {
  const Share alone{.global_batch = order.global_batch, .micro_batch = order.global_batch};
  return {order.samples, alone, order.drop_last};
}

}  // namespace

uint64_t usage_hash(int64_t epoch, int64_t sample) noexcept {
  return mix(static_cast<uint64_t>(epoch), static_cast<uint64_t>(sample));
}

int64_t steps_per_epoch(const OrderFacts& order) noexcept { return plan_of(order).steps_per_epoch(); }

Usage expected_usage(const OrderFacts& order, int64_t begin, int64_t end) noexcept {
  const StepPlan plan = plan_of(order);
  Usage usage;
  for (int64_t step = begin; step < end; ++step) {
    const MicroBatchPlan batch = plan.micro_batch(step);
    const Permutation permutation = order_of_epoch(order.seed, batch.epoch, order.samples);
    for (int64_t i = 0; i < batch.counted; ++i) {
      const int64_t position = (batch.first_position + i) % order.samples;
      usage.fingerprint += usage_hash(batch.epoch, order.shuffle ? permutation(position) : position);
    }
    usage.samples += batch.counted;
  }
  return usage;
}

}  // namespace gputrain::data
