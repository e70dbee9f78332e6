// The most common launcher on clusters: the real torchrun starts two ranks of this program.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"

namespace gputrain::comm {
namespace {

namespace fs = std::filesystem;
using gputrain::testing::join;
using gputrain::testing::RankBody;

const RankBody under_torchrun("under_torchrun", [] {
  ProcessGroups groups = join();
  const at::Tensor number = at::full({4}, groups.rank() + 1, at::kFloat);
  groups.tensors().all_reduce_sum(number, "number").wait();
  groups.control().barrier("end");
  std::printf("rank %d of %d: sum %g, agent's store %s\n", groups.rank(), groups.world_size(), number[0].item<double>(),
              std::getenv("TORCHELASTIC_USE_AGENT_STORE"));
  return 0;
});

std::string torchrun() {
  const fs::path path = fs::path(GPUTRAIN_SOURCE_DIR) / ".deps/bin/torchrun";
  return fs::exists(path) ? path.string() : std::string();
}

void expect_two_ranks(std::vector<std::string> options, const gputrain::testing::Environment& environment,
                      const std::string& agent_store) {
  if (torchrun().empty()) {
    ASSERT_EQ(std::getenv("CI"), nullptr) << "no torchrun in .deps/bin";
    GTEST_SKIP() << "no torchrun in .deps/bin";
  }
  std::vector<std::string> argv{torchrun(), "--no-python", "--nproc-per-node", "2"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {fs::read_symlink("/proc/self/exe"), "--body", "under_torchrun"});
  const auto result = gputrain::testing::run_program(argv, environment, std::chrono::seconds(90));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const char* rank : {"0", "1"}) {
    EXPECT_THAT(result.output,
                ::testing::HasSubstr("rank " + std::string(rank) + " of 2: sum 3, agent's store " + agent_store));
  }
}

TEST(Torchrun, StartsTwoRanksThatMeetInItsStore) {
  expect_two_ranks({"--master-addr", "127.0.0.1", "--master-port", std::to_string(gputrain::testing::free_port())}, {},
                   "True");
}

TEST(Torchrun, StartsTwoRanksThatMeetInRankZerosStore) {
  expect_two_ranks({"--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"},
                   {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}}, "False");
}

}  // namespace
}  // namespace gputrain::comm
