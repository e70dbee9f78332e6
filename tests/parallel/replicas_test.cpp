#include "gputrain/parallel/replicas.hpp"

#include <cstdint>

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/parallel/buckets.hpp"
#include "parallel/small_model.hpp"

namespace gputrain::parallel {
namespace {

using gputrain::testing::join;
using gputrain::testing::RankBody;
using gputrain::testing::RankProcesses;
using gputrain::testing::SmallModel;

NamedTensors some_buffers(int rank) {
  return {{"norm.mean", at::full({5}, rank + 0.5)},
          {"norm.count", at::full({}, rank, at::kLong)},
          {"norm.half", at::full({3}, rank, at::kBFloat16)},
          {"norm.turned", at::full({4, 3}, rank, at::kFloat).t()}};
}

const RankBody broadcasts("broadcasts", [] {
  comm::ProcessGroups groups = join();
  SmallModel model;
  const SmallModel original;
  const NamedTensors buffers = some_buffers(groups.rank()), expected = some_buffers(0);
  check_same_layout(groups, model.arena, buffers);
  if (groups.rank() > 0) at::Tensor(model.arena.values()).fill_(groups.rank());
  broadcast(groups, model.arena, buffers);
  check_replicas(groups, model.arena, buffers, "at step 1");
  if (!at::equal(model.arena.values(), original.arena.values())) return 98;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (!at::equal(buffers[i].second, expected[i].second)) return 97;
  }
  return 0;
});

TEST(Replicas, ReceiveTensorsOfRankZero) {
  RankProcesses ranks("broadcasts", 3);
  for (const auto& result : ranks.finish()) EXPECT_EQ(result.exit_code, 0) << result.output;
}

// One rank flips the sign bit of one number: a careless checksum would miss it.
int drift_of_rank(int rank) {
  comm::ProcessGroups groups = join();
  SmallModel model;
  const NamedTensors buffers = some_buffers(0);
  check_replicas(groups, model.arena, buffers, "at step 1");
  if (groups.rank() == rank) {
    const at::Tensor bits = model.parameters[4].detach().view(at::kLong);
    bits.view({-1})[200].bitwise_xor_(INT64_MIN);
  }
  check_replicas(groups, model.arena, buffers, "at step 2");
  return 0;
}

const RankBody drifts("drifts", [] { return drift_of_rank(2); });
const RankBody first_rank_drifts("first_rank_drifts", [] { return drift_of_rank(0); });

void expect_told(const std::string& body, int world, const std::string& told) {
  RankProcesses ranks(body, world);
  for (const auto& result : ranks.finish()) {
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::refused)) << result.output;
    EXPECT_THAT(result.output, ::testing::HasSubstr(told));
  }
}

TEST(Replicas, NameOneBitThatDiffers) {
  expect_told("drifts", 3, "drifted apart at step 2: unit2.weight on rank 2 is not what the other ranks have");
}

TEST(Replicas, TrustTheMajority) {
  expect_told("first_rank_drifts", 3, "at step 2: unit2.weight on rank 0 is not what the other ranks have");
  expect_told("first_rank_drifts", 2, "at step 2: unit2.weight on rank 1 is not what rank 0 has");
}

const RankBody buffer_drifts("buffer_drifts", [] {
  comm::ProcessGroups groups = join();
  const SmallModel model;
  check_replicas(groups, model.arena, some_buffers(groups.rank()), "at step 3");
  return 0;
});

// Ranks 0 and 2, and ranks 1 and 3, have the same shard.
const RankBody shard_drifts("shard_drifts", [] {
  comm::ProcessGroups groups = join();
  groups.arrange({.ranks = 4, .replicas = 2});
  const at::Tensor weight = at::full({10}, 1.5);
  device::Arena arena(
      {{"weight", weight}},
      {.gradients = device::Kept::owned, .values = device::Kept::owned, .working_type = at::kFloat, .shards = 2});
  arena.own(equal_shards(arena, 2)[static_cast<size_t>(groups.mesh().shard_of(groups.rank()))]);
  at::Tensor(arena.owned_values()).fill_(groups.mesh().shard_of(groups.rank()));  // shards differ
  check_replicas(groups, arena, {}, "at step 4");
  if (groups.rank() == 3) at::Tensor(arena.owned_values())[2].fill_(7);
  check_replicas(groups, arena, {}, "at step 5");
  return 0;
});

TEST(Replicas, CompareShardsOfEachOther) {
  expect_told("shard_drifts", 4, "at step 5: part 0 of the weights of its shard on rank 3 is not what rank 1 has");
}

// Ranks 0 to 3 and 4 to 7 have other tensors; of those that are split, even and odd ranks have other parts.
const RankBody stage_drifts("stage_drifts", [] {
  comm::ProcessGroups groups = join();
  groups.arrange({.ranks = 8, .tensor = 2, .pipeline = 2});
  const int place = groups.mesh().tensor_place_of(groups.rank());
  const device::Split split{.dim = 0, .sections = {20}, .rank = place, .ranks = 2};
  std::vector<device::ArenaTensor> tensors{{.name = "weight", .value = at::full({10}, place + 0.5), .split = split}};
  if (groups.mesh().stage_of(groups.rank()) == 1) tensors.push_back({.name = "norm", .value = at::full({10}, 1.5)});
  const device::Arena arena(tensors);
  check_same_layout(groups, arena, {});
  check_replicas(groups, arena, {}, "at step 6");
  if (groups.rank() == 7) at::Tensor(tensors[1].value)[2].fill_(7);
  check_replicas(groups, arena, {}, "at step 7");
  return 0;
});

TEST(Replicas, CompareRanksOfAStage) {
  RankProcesses ranks("stage_drifts", 8);
  const auto results = ranks.finish();
  for (size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].exit_code, static_cast<int>(ExitCode::refused)) << results[rank].output;
    const std::string name = rank < 4 ? "tensor 1 of stage 1" : "norm";
    EXPECT_THAT(results[rank].output,
                ::testing::HasSubstr("at step 7: " + name + " on rank 7 is not what the other ranks have"));
  }
}

TEST(Replicas, CompareBuffersToo) { expect_told("buffer_drifts", 2, "norm.mean on rank 1"); }

const RankBody other_layout("other_layout", [] {
  comm::ProcessGroups groups = join();
  const int64_t width = groups.rank() == 1 ? 40 : 32;
  const at::Tensor weight = at::empty({width, 2});
  const device::Arena arena({{"weight", weight}});
  check_same_layout(groups, arena, {});
  return 0;
});

TEST(Replicas, RefuseDifferentModelsBeforeSending) {
  RankProcesses ranks("other_layout", 2);
  for (const auto& result : ranks.finish()) {
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::usage)) << result.output;
    EXPECT_THAT(result.output, ::testing::HasSubstr("the ranks built different models"));
    EXPECT_THAT(result.output, ::testing::HasSubstr("rank 1 has 1 of 96"));
  }
}

}  // namespace
}  // namespace gputrain::parallel
