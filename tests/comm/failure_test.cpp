// What the surviving ranks report when one dies, hangs or never joins.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <list>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::comm {

std::string plain_message(const std::exception& error);  // internal to comm

namespace {

using gputrain::testing::Environment;
using gputrain::testing::join;
using gputrain::testing::RankBody;
using gputrain::testing::RankProcesses;
using gputrain::testing::RankResult;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRestart = static_cast<int>(ExitCode::restart);

// Rank 1 stops calling collectives; rank 0 waits for it in one.
const RankBody lonely_reduce("lonely_reduce", [] {
  ProcessGroups groups = join(std::chrono::seconds(2));
  groups.control().barrier("start");
  std::printf("ready\n");
  std::fflush(stdout);
  if (groups.rank() == 1) ::pause();
  groups.tensors().all_reduce_sum(at::zeros({1000}), "gradients 3").wait();
  return 0;
});

TEST(CollectiveFailure, NamesCollectiveWhenARankIsKilled) {
  RankProcesses ranks("lonely_reduce", 3);
  for (int rank = 0; rank < 3; ++rank) ranks.wait_for_output(rank, "ready");
  const auto start = std::chrono::steady_clock::now();
  ranks.kill(1, SIGKILL);
  const auto results = ranks.finish();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  EXPECT_EQ(results[1].signal, SIGKILL);
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(results[rank].exit_code, kRestart) << "signal " << results[rank].signal << " " << results[rank].output;
    EXPECT_THAT(results[rank].output, HasSubstr("rank " + std::to_string(rank)));
    EXPECT_THAT(results[rank].output, HasSubstr("all-reduce of gradients 3"));
    EXPECT_THAT(results[rank].output, Not(HasSubstr("frame #")));
  }
}

TEST(CollectiveFailure, GivesUpHungRankAtDeadline) {
  RankProcesses ranks("lonely_reduce", 2);
  for (int rank = 0; rank < 2; ++rank) ranks.wait_for_output(rank, "ready");
  ranks.kill(1, SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  ranks.wait_for_end(0);
  const auto waited = std::chrono::steady_clock::now() - start;
  ranks.kill(1, SIGKILL);
  const auto results = ranks.finish();
  EXPECT_EQ(results[0].exit_code, kRestart) << results[0].output;
  EXPECT_THAT(results[0].output, HasSubstr("deadline 2.0 s"));
  EXPECT_THAT(results[0].output, HasSubstr("Timed out"));
  EXPECT_LT(waited, std::chrono::seconds(10));
}

// Two replicas of two shards. Rank 3 stops calling collectives; one rank waits for it in a group of the mesh, the
// others are done there and wait for that one.
const RankBody lonely_in_mesh("lonely_in_mesh", [] {
  ProcessGroups groups = join(std::chrono::seconds(2));
  const std::string axis = std::getenv("AXIS");
  const bool has_stages = axis == "stages", has_layers = axis == "layers";
  groups.arrange(has_stages   ? Mesh{.ranks = 4, .pipeline = 2}
                 : has_layers ? Mesh{.ranks = 4, .tensor = 2}
                              : Mesh{.ranks = 4, .replicas = 2, .context = 2});
  Group& link = (groups.rank() < 2 ? groups.to_next() : groups.to_previous()).activations;
  Group& group = has_stages           ? link
                 : has_layers         ? groups.layers()
                 : axis == "replicas" ? groups.replicas()
                 : axis == "shards"   ? groups.shards()
                                      : groups.context();
  const at::Tensor ranks = at::full({}, groups.rank(), at::kLong);
  group.all_reduce_sum(ranks, "ranks").wait();  // of 1 and 3, or of 2 and 3
  if (groups.rank() == 3 && ranks.item<int64_t>() != (axis == "replicas" || has_stages ? 4 : 5)) return 98;
  groups.control().barrier("start");
  std::printf("ready\n");
  std::fflush(stdout);
  const bool strays = groups.rank() == 3;
  if (strays && std::getenv("GOES_ON") == nullptr) ::pause();
  if (!strays) group.all_reduce_sum(at::zeros({1000}), "gradients 3").wait();
  groups.control().barrier("end of step 1");
  return 0;
});

/// A group that rank 3 is in, besides one other rank.
struct Axis {
  const char *name, *group, *place;  // in messages: of the group, and of rank 3
  int waiting;                       // the other rank
};
constexpr Axis kReplicas{"replicas", "across replicas", "replica 1, shard 1, context 1", 1},
    kShards{"shards", "among shards", "replica 1, shard 1, context 1", 2},
    kTexts{"context", "of shared texts", "replica 1, shard 1, context 1", 2},
    kStages{"stages", "from stage 0 to 1", "stage 1, shard 1", 1},
    kLayers{"layers", "of shared layers", "shard 1, tensor 1", 2};

/// Expects that all ranks have ended, and that the page names the collective of the axis that rank 3 has not called.
void expect_stray_rank_3_named(const Axis& axis, const std::vector<RankResult>& results) {
  std::string told;
  for (const auto& result : results) {
    EXPECT_NE(result.exit_code, 0) << axis.name << result.output;
    told += result.output;
  }
  EXPECT_THAT(told, HasSubstr("rank 3 (" + std::string(axis.place) + ") on"));
  EXPECT_THAT(told, HasSubstr("at       all-reduce of gradients 3 " + std::string(axis.group)));
  EXPECT_THAT(told, HasSubstr("arrived  rank " + std::to_string(axis.waiting)));
  EXPECT_THAT(told, HasSubstr("missing  rank 3 (" + std::string(axis.place) + ") on"));
}

/// Expects that the ranks end, and that the one that waits in the group of the axis names it and rank 3, which gets the
/// signal.
void expect_rank_3_named(const Axis& axis, int signal) {
  RankProcesses ranks("lonely_in_mesh", 4, {{"AXIS", axis.name}});
  for (int rank = 0; rank < 4; ++rank) ranks.wait_for_output(rank, "ready");
  ranks.kill(3, signal);
  for (int rank = 0; rank < 3; ++rank) ranks.wait_for_end(rank);
  ranks.kill(3, SIGKILL);
  const auto results = ranks.finish();
  for (size_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(results[rank].exit_code, kRestart) << axis.name << results[rank].output;
  const std::string& told = results[static_cast<size_t>(axis.waiting)].output;
  EXPECT_THAT(told, HasSubstr("all-reduce of gradients 3 " + std::string(axis.group) + " failed"));
  EXPECT_THAT(told, HasSubstr("rank 3 (" + std::string(axis.place) + ") on"));
}

TEST(CollectiveFailure, NamesTheRankAndTheGroupOfAMesh) {
  for (const Axis& axis : {kReplicas, kShards, kTexts, kStages, kLayers}) expect_rank_3_named(axis, SIGKILL);
  for (const Axis& axis : {kShards, kStages}) expect_rank_3_named(axis, SIGSTOP);
}

TEST(CollectiveFailure, NamesTheRankThatSkipsACollectiveOfAMesh) {
  constexpr Axis kAxes[] = {kReplicas, kShards, kTexts, kStages, kLayers};
  std::list<RankProcesses> runs;
  for (const Axis& axis : kAxes)
    runs.emplace_back("lonely_in_mesh", 4, Environment{{"AXIS", axis.name}, {"GOES_ON", "1"}});
  for (auto run = runs.begin(); const Axis& axis : kAxes) expect_stray_rank_3_named(axis, (run++)->finish());
}

const RankBody late_use("late_use", [] {
  ProcessGroups groups = join(std::chrono::seconds(2));
  groups.control().barrier("start");
  if (groups.rank() == 1) return 7;
  for (int i = 0; i < 2; ++i) {
    try {
      groups.control().barrier("later");
      return 98;
    } catch (const Error& error) {
      if (error.code() != ExitCode::restart) return 97;
    }
  }
  return 0;
});

// Rank 0's GPU exceeds the deadline in a step, because rank 1 does not join the collective that rank 0 queued.
const RankBody late_device("late_device", [] {
  ProcessGroups groups = join(std::chrono::seconds(2));
  groups.control().barrier("start");
  Pending queued;
  if (groups.rank() == 0) queued = groups.tensors().all_reduce_sum(at::zeros({8}), "gradients 3");
  const auto now = std::chrono::steady_clock::now();
  for (const int seconds : {0, 1, 3}) {
    if (groups.rank() == 0) groups.tensors().check("step 12", now - std::chrono::seconds(seconds));
  }
  groups.control().barrier("later");
  return 0;
});

TEST(CollectiveFailure, WaitsForDeviceUntilDeadline) {
  RankProcesses ranks("late_device", 2);
  const auto results = ranks.finish();
  EXPECT_EQ(results[0].exit_code, kRestart) << results[0].output;
  EXPECT_THAT(results[0].output, HasSubstr("step 12 failed after 3."));
  EXPECT_THAT(results[0].output, HasSubstr("rank 1 on "));
  EXPECT_THAT(results[0].output, HasSubstr("did not come (the GPU has not finished it)"));
  EXPECT_EQ(results[1].exit_code, kRestart) << results[1].output;
}

// Rank 1 dies while rank 0 waits for its GPU.
const RankBody lonely_device("lonely_device", []() -> int {
  ProcessGroups groups = join(std::chrono::seconds(60));
  groups.control().barrier("start");
  if (groups.rank() == 1) ::raise(SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  while (true) groups.tensors().check("step 12", begin);
});

TEST(CollectiveFailure, EndsDeviceWaitWhenARankIsGone) {
  RankProcesses ranks("lonely_device", 2);
  const auto results = ranks.finish();
  EXPECT_EQ(results[0].exit_code, kRestart) << results[0].output;
  EXPECT_THAT(results[0].output, HasSubstr("has ended without a word"));
}

TEST(CollectiveFailure, IncludesMessageOfNccl) {
  const c10::DistBackendError error(
      {__func__, __FILE__, __LINE__},
      "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled system error (run with "
      "NCCL_DEBUG=INFO for "
      "details), NCCL version 2.28.9\nncclSystemError: System call (e.g. socket, malloc) or external library call "
      "failed or "
      "device error. \nLast error:\nError while creating shared memory segment /dev/shm/nccl-x (size 33030528)\n");
  EXPECT_EQ(
      plain_message(error),
      "NCCL: unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.28.9: Error while creating "
      "shared memory segment /dev/shm/nccl-x (size 33030528)");
}

TEST(CollectiveFailure, FailsAllLaterCollectivesToo) {
  RankProcesses ranks("late_use", 2);
  const auto results = ranks.finish();
  EXPECT_EQ(results[1].exit_code, 7);
  EXPECT_EQ(results[0].exit_code, 0) << results[0].output;
}

}  // namespace
}  // namespace gputrain::comm
