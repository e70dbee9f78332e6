// NCCL between two ranks on one GPU. NCCL rejects that on one host, so the test makes it believe that there are two
// hosts; all traffic then uses sockets.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/device/captured_graph.hpp"
#include "gputrain/device/run_ahead.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::comm {
namespace {

using ::testing::HasSubstr;
using testing::RankBody;
using testing::RankProcesses;

ProcessGroups join_on_gpu(std::chrono::milliseconds deadline = std::chrono::seconds(30)) {
  ::setenv("NCCL_HOSTID", std::getenv("RANK"), 1);
  return testing::join(deadline, device::choose_device("cuda", 0));
}

at::Tensor filled(double value, at::ScalarType type = at::kFloat) {
  return at::full({1 << 20}, value, at::TensorOptions().device(at::kCUDA).dtype(type));
}

bool holds(const at::Tensor& tensor, double value) { return tensor.eq(value).all().item<bool>(); }

const RankBody collects("collects", [] {
  ProcessGroups groups = join_on_gpu();
  Group& tensors = groups.tensors();
  int wrong = 0;
  const auto expect = [&](bool is_right, const char* what) {
    if (is_right) return;
    ++wrong;
    std::fprintf(stderr, "wrong: %s\n", what);
  };
  const double own = groups.rank() + 1;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor sum = filled(own, type);
    Pending first = tensors.all_reduce_sum(sum, "sum");
    const at::Tensor other = filled(10 * own, type);
    Pending second = tensors.all_reduce_sum(other, "other sum");
    first.wait();
    second.wait();
    expect(holds(sum, 3) && holds(other, 30), "sums under way together");
  }
  const at::Tensor parts = filled(own), mine = parts.narrow(0, groups.rank() << 19, 1 << 19);
  tensors.reduce_scatter_sum(parts, mine, "parts").wait();
  expect(holds(mine, 3), "this rank's part of a sum, in place");
  mine.fill_(own);
  tensors.all_gather_into(parts, mine, "parts").wait();
  expect(holds(parts.narrow(0, 0, 1 << 19), 1) && holds(parts.narrow(0, 1 << 19, 1 << 19), 2), "everybody's parts");
  const at::Tensor reduced = filled(own);
  tensors.reduce_sum(reduced, 1, "sum for one").wait();
  expect(groups.rank() == 0 || holds(reduced, 3), "sum for one");
  const at::Tensor sent = filled(own);
  tensors.broadcast(sent, 1, "values");
  expect(holds(sent, 2), "values");
  const at::Tensor gathered = tensors.all_gather(filled(own), "all");
  expect(holds(gathered[0], 1) && holds(gathered[1], 2), "all");
  tensors.barrier("barrier");
  groups.control().barrier("end");
  return wrong;
});

const RankBody replays("replays", [] {
  ProcessGroups groups = join_on_gpu();
  Group& tensors = groups.tensors();
  const double own = groups.rank() + 1;
  const at::Tensor sum = filled(own);
  const auto add_up = [&] { tensors.all_reduce_sum(sum, "sum").wait(); };
  add_up();  // 3
  const auto graphs = device::make_captured_graphs(sum.device());
  const std::string obstacle = graphs->capture(add_up);
  int wrong = obstacle.empty() ? 0 : 1;
  if (wrong > 0) std::fprintf(stderr, "not recorded: %s\n", obstacle.c_str());
  wrong += holds(sum, 3) ? 0 : 1;
  graphs->replay(0);  // 6
  add_up();                   // 12
  graphs->replay(0);  // 24
  wrong += holds(sum, 24) ? 0 : 1;
  groups.control().barrier("end");
  return wrong;
});

/// Rank 1 dies before rank 0 calls the collective. With REPLAYS set, rank 0 replays a recorded one.
const RankBody dies("dies", [] {
  ProcessGroups groups = join_on_gpu(std::chrono::seconds(20));
  const at::Tensor sum = filled(1);
  const auto add_up = [&] { groups.tensors().all_reduce_sum(sum, "sum").wait(); };
  add_up();
  std::unique_ptr<device::CapturedGraphs> graphs;
  if (std::getenv("REPLAYS") != nullptr) {
    graphs = device::make_captured_graphs(sum.device());
    if (!graphs->capture(add_up).empty()) return 1;
  }
  device::synchronize(sum.device());
  groups.control().barrier("before the death");
  if (groups.rank() == 1) ::raise(SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  device::RunAhead ahead(sum.device());
  graphs ? graphs->replay(0) : add_up();
  ahead.mark();
  ahead.wait(0, [&](size_t) { groups.tensors().check("the step", begin); });
  return 0;
});

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device::gpu_count() == 0) GTEST_SKIP() << "there is no GPU here";
  }
};

TEST_F(Nccl, CollectsFromTwoRanksOnOneGpu) {
  RankProcesses ranks("collects", 2);
  for (const auto& result : ranks.finish()) EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST_F(Nccl, CollectsAtEveryReplay) {
  RankProcesses ranks("replays", 2);
  for (const auto& result : ranks.finish()) EXPECT_EQ(result.exit_code, 0) << result.output;
}

void expect_end_of_the_other(const testing::Environment& environment) {
  RankProcesses ranks("dies", 2, environment);
  const auto results = ranks.finish();
  EXPECT_EQ(results[0].exit_code, static_cast<int>(ExitCode::restart)) << results[0].output;
  EXPECT_LT(results[0].seconds, 45);
}

TEST_F(Nccl, EndsWhenOtherRankDies) { expect_end_of_the_other({}); }
TEST_F(Nccl, EndsReplayWhenOtherRankDies) { expect_end_of_the_other({{"REPLAYS", "1"}}); }

}  // namespace
}  // namespace gputrain::comm
