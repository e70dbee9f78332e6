#include "gputrain/data/epoch_shares.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "data/numbered_dataset.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/loader.hpp"

namespace gputrain::data {
namespace {

/// The counted samples of each rank's loader over the first epoch.
std::vector<int64_t> loaded(const OrderFacts& order, int64_t micro_batch, int world_size) {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < world_size; ++rank) {
    LoaderOptions options;
    options.partition = {
        .global_batch = order.global_batch, .micro_batch = micro_batch, .rank = rank, .world_size = world_size};
    options.seed = order.seed;
    options.drop_last = order.drop_last;
    Loader loader(std::make_shared<NumberedDataset>(order.samples), options);
    int64_t samples = 0;
    for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) samples += loader.next_step().samples;
    counts.push_back(samples);
  }
  return counts;
}

TEST(EpochShares, MatchWhatEachLoaderHandsOut) {
  for (const int world : {1, 2, 3, 7, 16}) {
    for (const bool drop : {false, true}) {
      const OrderFacts order{.samples = 101, .global_batch = 17, .seed = 5, .drop_last = drop};
      const auto shares =
          walk_epoch(order, {.global_batch = order.global_batch, .micro_batch = 2, .world_size = world});
      const auto counts = loaded(order, 2, world);
      const auto [fewest, most] = std::minmax_element(counts.begin(), counts.end());
      EXPECT_EQ(shares.in_epoch, (EpochShares::Spread{*fewest, *most})) << world;
      EXPECT_EQ(shares.used, drop ? 85 : 101);
      EXPECT_EQ(shares.steps, drop ? 5 : 6);
      EXPECT_EQ(shares.in_last_step, drop ? 17 : 16);
      EXPECT_TRUE(shares.each_looked_up);
    }
  }
}

TEST(EpochShares, TakeEachSampleAsOftenAsItIsRepeated) {
  const auto shares = walk_epoch({.samples = 101, .global_batch = 17, .seed = 5, .repeats = 4},
                                 {.global_batch = 17, .micro_batch = 2, .world_size = 3});
  EXPECT_EQ(shares.repeats, 4);
  EXPECT_EQ(shares.used, 101);
  EXPECT_TRUE(shares.each_looked_up);
}

TEST(EpochShares, CountIdleRanksInLastStep) {
  const auto shares =
      walk_epoch({.samples = 1003, .global_batch = 100}, {.global_batch = 100, .micro_batch = 2, .world_size = 50});
  EXPECT_EQ(shares.in_step, (EpochShares::Spread{2, 2}));
  EXPECT_EQ(shares.in_last_step, 3);
  EXPECT_EQ(shares.idle_in_last_step, 48);
  EXPECT_EQ(shares.in_epoch, (EpochShares::Spread{20, 22}));
}

TEST(EpochShares, FollowFromFirstAndLastStepWhenHuge) {
  const int64_t samples = (int64_t{1} << 40) + 5;
  const auto shares = walk_epoch({.samples = samples, .global_batch = 1 << 20},
                                 {.global_batch = 1 << 20, .micro_batch = 64, .world_size = 1024});
  EXPECT_FALSE(shares.each_looked_up);
  EXPECT_EQ(shares.used, samples);
  EXPECT_EQ(shares.in_last_step, 5);
  EXPECT_EQ(shares.idle_in_last_step, 1023);
  EXPECT_EQ(shares.in_epoch, (EpochShares::Spread{int64_t{1} << 30, (int64_t{1} << 30) + 5}));
}

TEST(EpochShares, RefuseBatchSmallerThanRankCount) {
  EXPECT_THROW(walk_epoch({.samples = 100, .global_batch = 7}, {.global_batch = 7, .micro_batch = 1, .world_size = 8}),
               Error);
}

}  // namespace
}  // namespace gputrain::data
