#include "gputrain/data/sample_usage.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "gputrain/data/order.hpp"

namespace gputrain::data {
namespace {

SampleUsage of(const std::vector<int64_t>& samples, int64_t epoch = 0) {
  SampleUsage usage;
  for (const int64_t sample : samples) usage.add({1, usage_hash(epoch, sample)});
  return usage;
}

TEST(Usage, IgnoresTheOrder) { EXPECT_EQ(of({1, 2, 3}), of({3, 1, 2})); }

TEST(Usage, ChangesWithAnyDifference) {
  EXPECT_NE(of({1, 2, 3}), of({1, 2}));
  EXPECT_NE(of({1, 2, 3}), of({1, 2, 3, 3}));
  EXPECT_NE(of({1, 2, 3}), of({1, 2, 2}));
  EXPECT_NE(of({1, 2, 3}), of({1, 2, 4}));
  EXPECT_NE(of({1, 2, 3}), of({1, 2, 3}, 1));
}

TEST(Usage, CountsEverySampleOnceInAWholeEpoch) {
  for (const bool shuffle : {true, false}) {
    const OrderFacts order{.samples = 103, .global_batch = 10, .seed = 5, .shuffle = shuffle};
    std::vector<int64_t> all(103);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    ASSERT_EQ(steps_per_epoch(order), 11);
    EXPECT_EQ(expected_usage(order, 0, 11), of(all));
    SampleUsage two = of(all, 0);
    two.add(of(all, 1));
    EXPECT_EQ(expected_usage(order, 0, 22), two);
  }
}

TEST(Usage, AddsUpIntervalsInLoaderOrder) {
  const OrderFacts order{.samples = 103, .global_batch = 10, .seed = 5, .drop_last = true};
  SampleUsage parts = expected_usage(order, 0, 7);
  parts.add(expected_usage(order, 7, 25));
  EXPECT_EQ(parts, expected_usage(order, 0, 25));
  EXPECT_EQ(parts.samples, 250);
  const Permutation permutation = order_of_epoch(5, 0, 103);
  std::vector<int64_t> first;
  for (int64_t position = 0; position < 10; ++position) first.push_back(permutation(position));
  EXPECT_EQ(expected_usage(order, 0, 1), of(first));
}

TEST(Usage, GoesOnWhereAnotherGlobalBatchStopped) {
  const OrderFacts before{.samples = 37, .global_batch = 8, .seed = 5};
  const Position middle = position_after(before, 7);
  EXPECT_EQ(middle, (Position{1, 16}));
  const OrderFacts after{.samples = 37, .global_batch = 16, .seed = 5, .first_step = 7, .from = middle};
  EXPECT_EQ(uniform_step(after, 9), 6);  // two epochs of three steps
  EXPECT_EQ(position_after(after, 9), (Position{2, 0}));
  SampleUsage usage = expected_usage(before, 0, 7);
  usage.add(expected_usage(after, 7, 9));
  EXPECT_EQ(usage, usage_before(after, {.epoch = 2}));
  EXPECT_EQ(usage, expected_usage(before, 0, 10));
  EXPECT_EQ(samples_of_step(after, 8).samples.size(), 5U);
}

TEST(Usage, CountsUniformStepsAsTaken) {
  for (const bool drop_last : {false, true}) {
    OrderFacts order{.samples = 103, .global_batch = 10, .drop_last = drop_last};
    for (int64_t step = 0; step < 25; ++step) {
      order.first_step = step;
      order.from = position_after({.samples = 103, .global_batch = 10, .drop_last = drop_last}, step);
      EXPECT_EQ(uniform_step(order, step), step);
    }
  }
}

TEST(Usage, RejectsPlacesOutsideTheData) {
  EXPECT_TRUE(is_reachable({.samples = 10, .first_step = 3, .from = {.epoch = 1000, .samples = 9}}));
  EXPECT_FALSE(is_reachable({.samples = 10, .first_step = -1}));
  EXPECT_FALSE(is_reachable({.samples = 10, .from = {.epoch = 0, .samples = 11}}));
  EXPECT_FALSE(is_reachable({.samples = 10, .from = {.epoch = -1, .samples = 0}}));
  EXPECT_FALSE(is_reachable({.samples = 10, .from = {.epoch = INT64_MAX, .samples = 0}}));
}

}  // namespace
}  // namespace gputrain::data
