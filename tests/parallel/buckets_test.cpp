#include "gputrain/parallel/buckets.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "parallel/small_model.hpp"

namespace gputrain::parallel {
namespace {

using gputrain::testing::expect_success;
using gputrain::testing::fail;
using gputrain::testing::join;
using gputrain::testing::RankBody;

device::Arena arena_of(const std::vector<int64_t>& unit_sizes) {
  std::vector<device::ArenaTensor> arena_tensors;
  for (size_t i = 0; i < unit_sizes.size(); ++i) {
    arena_tensors.push_back({"unit" + std::to_string(i), at::empty({unit_sizes[i]}), static_cast<int64_t>(i), true});
  }
  return device::Arena(arena_tensors);
}

std::vector<std::pair<int64_t, int64_t>> planned(const device::Arena& arena, const device::JoinLimits& limits) {
  std::vector<std::pair<int64_t, int64_t>> bounds;
  for (const device::Range& range : plan_buckets(arena, limits)) bounds.emplace_back(range.begin, range.end);
  return bounds;
}

using Bounds = std::vector<std::pair<int64_t, int64_t>>;

TEST(Buckets, GoFromLastUnitToFirstWithinLimits) {
  const device::Arena arena = arena_of({32, 64, 32, 96, 32});  // unit ends: 32, 96, 128, 224, 256
  EXPECT_EQ(planned(arena, {.bytes = 4 * 1000, .first_bytes = 4 * 1000}), (Bounds{{0, 256}}));
  EXPECT_EQ(planned(arena, {.bytes = 4 * 128, .first_bytes = 4 * 32}), (Bounds{{224, 256}, {96, 224}, {0, 96}}));
  EXPECT_EQ(planned(arena, {.bytes = 1, .first_bytes = 1}),
            (Bounds{{224, 256}, {128, 224}, {96, 128}, {32, 96}, {0, 32}}));
}

TEST(Shards, SplitPartsEquallyInWholeLines) {
  std::vector<device::ArenaTensor> arena_tensors;
  for (const int64_t size : {100, 64, 32})
    arena_tensors.push_back({.name = "w" + std::to_string(size), .value = at::empty({size}), .unit = 100 - size});
  const device::JoinLimits two_units{.bytes = 4 * 192, .first_bytes = 4 * 32};
  const device::Arena arena(arena_tensors, {.shards = 3, .parts = two_units});
  // w32 has 32 elements: 96 with padding; w100 and w64 are one part of 128 + 64 elements, which needs none.
  EXPECT_EQ(planned(arena, {}), (Bounds{{192, 288}, {0, 192}}));
  EXPECT_EQ(arena.numel(), 288);
  const auto shards = equal_shards(arena, 3);
  for (int64_t rank = 0; rank < 3; ++rank) {
    const device::Shard& shard = shards.at(static_cast<size_t>(rank));
    ASSERT_EQ(shard.size(), 2u);
    EXPECT_EQ(shard[0].begin, 64 * rank);
    EXPECT_EQ(shard[0].end, 64 * (rank + 1));
    EXPECT_EQ(shard[1].begin, 192 + 32 * rank);
    EXPECT_EQ(shard[1].end, 192 + 32 * (rank + 1));
  }
}

constexpr int64_t kMebibyte = 1 << 20;

TEST(BucketSize, GrowsWithLatencySpeedAndModel) {
  const LinkSpeed ethernet{.latency_seconds = 5e-4, .bytes_per_second = 1e9};
  EXPECT_EQ(best_bucket_bytes(ethernet, 500'000'000), 16 * kMebibyte);  // sqrt(5e-4 * 1e9 * 5e8) = 15.8e6
  EXPECT_EQ(best_bucket_bytes(ethernet, 8'000'000), 2 * kMebibyte);
  EXPECT_EQ(best_bucket_bytes({.latency_seconds = 2e-3, .bytes_per_second = 1e9}, 500'000'000), 32 * kMebibyte);
  EXPECT_EQ(best_bucket_bytes({.latency_seconds = 2e-5, .bytes_per_second = 1e11}, 500'000'000), 32 * kMebibyte);
}

TEST(BucketSize, StaysWithinBounds) {
  EXPECT_EQ(best_bucket_bytes({.latency_seconds = 1e-9, .bytes_per_second = 1}, 1), kMebibyte);
  EXPECT_EQ(best_bucket_bytes({.latency_seconds = 10, .bytes_per_second = 1e12}, INT64_MAX), 128 * kMebibyte);
  EXPECT_EQ(best_bucket_bytes({}, 1), kMebibyte);
}

const RankBody measures_a_link("measures_a_link", [] {
  comm::ProcessGroups groups = join();
  const LinkSpeed link = measure_link(groups, at::kCPU);
  if (!(link.latency_seconds > 0 && link.latency_seconds < 1)) return fail("latency", link.latency_seconds);
  if (!(link.bytes_per_second > 1e6)) return fail("speed", link.bytes_per_second);
  const at::Tensor mine = at::tensor({link.latency_seconds, link.bytes_per_second}, at::kDouble);
  const at::Tensor all = groups.control().all_gather(mine, "what each rank has");
  return at::equal(all[0], all[1]) && at::equal(all[0], all[2]) ? 0 : fail("ranks disagree", 0);
});

TEST(BucketSize, IsMeasuredOnceForAllRanks) { expect_success("measures_a_link", 3); }

// Checkpoints store the measured bucket size, because an element's position decides in which order three ranks add it
// up.
const RankBody adds_up_in_two_sizes("adds_up_in_two_sizes", [] {
  comm::ProcessGroups groups = join();
  constexpr int64_t kElements = 30'000;
  at::Tensor whole = at::randn({kElements}, at::kFloat) * (groups.rank() + 1);
  at::Tensor pieces = whole.clone();
  groups.tensors().all_reduce_sum(whole, "whole").wait();
  for (int64_t begin = 0; begin < kElements; begin += 1000) {
    groups.tensors().all_reduce_sum(pieces.narrow(0, begin, 1000), "piece").wait();
  }
  const bool is_equal = at::equal(whole, pieces);
  return is_equal == (groups.world_size() == 2) ? 0 : fail("equal", is_equal);
});

TEST(BucketSize, ChangesRoundingOfThreeRanksNotOfTwo) {
  expect_success("adds_up_in_two_sizes", 2);
  expect_success("adds_up_in_two_sizes", 3);
}

}  // namespace
}  // namespace gputrain::parallel
