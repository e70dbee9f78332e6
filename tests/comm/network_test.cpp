// Ranks on two hosts whose network blocks ports they need. The hosts are network namespaces.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/core/error.hpp"
#include "support/needs.hpp"

namespace gputrain::comm {
namespace {

using gputrain::testing::Environment;
using gputrain::testing::join;
using gputrain::testing::RankBody;
using gputrain::testing::RankProcesses;
using gputrain::testing::run_program;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

const RankBody meets("meets", [] {
  const std::string host = std::getenv("HOST_NAMESPACE");
  const int space = ::open(("/run/netns/" + host).c_str(), O_RDONLY | O_CLOEXEC);
  if (::setns(space, CLONE_NEWNET) != 0) return 97;
  ProcessGroups groups = join(600s);
  groups.control().barrier("start");
  std::printf("met\n");
  std::fflush(stdout);
  while (std::getenv("TRAINS") != nullptr) groups.tensors().all_reduce_sum(at::zeros({1000}), "gradients 3").wait();
  groups.control().barrier("end");
  return 0;
});

class RankNetwork : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string program = gputrain::testing::missing_program({"/usr/sbin/ip", "/usr/sbin/nft"});
    GPUTRAIN_SKIP_FOR(program.empty() ? gputrain::testing::no_own_hosts() : program);
    connect();
  }

  void TearDown() override {
    for (const int each : {0, 1}) is_done({"/usr/sbin/ip", "netns", "del", host(each)});
  }

  static bool is_done(const std::vector<std::string>& command) { return run_program(command, {}, 30s).exit_code == 0; }
  static void must(const std::vector<std::string>& command) {
    const auto result = run_program(command, {}, 30s);
    if (result.exit_code != 0) throw std::runtime_error(command[0] + ": " + result.output);
  }
  static std::string host(int number) { return "gtnet" + std::to_string(::getpid()) + "h" + std::to_string(number); }

  /// Two hosts with a cable between them.
  void connect() {
    for (const int each : {0, 1}) must({"/usr/sbin/ip", "netns", "add", host(each)});
    must({"/usr/sbin/ip", "-n", host(0), "link", "add", "cable0", "type", "veth", "peer", "name", "cable1", "netns",
          host(1)});
    for (const int each : {0, 1}) {
      const std::string number = std::to_string(each);
      must({"/usr/sbin/ip", "-n", host(each), "addr", "add", "10.232.7." + std::to_string(each + 1) + "/24", "dev",
            "cable" + number});
      must({"/usr/sbin/ip", "-n", host(each), "link", "set", "lo", "up"});
      must({"/usr/sbin/ip", "-n", host(each), "link", "set", "cable" + number, "up"});
    }
  }

  /// Applies `how` ("drop", "reject with tcp reset") to new connections from outside, except to the rendezvous port.
  void close_ports(int of_host, const std::string& how) {
    must({"/usr/sbin/ip", "netns", "exec", host(of_host), "/usr/sbin/nft",
          "table inet wall { chain entry { type filter hook input priority 0; "
          "tcp flags & (syn | ack) == syn tcp dport != 29500 iif != lo " +
              how + "; }; }"});
  }

  static Environment on(int number) { return {{"HOST_NAMESPACE", host(number)}}; }
  static RankProcesses first_rank(Environment more = {}) {
    more.insert({{"HOST_NAMESPACE", host(0)},
                 {"WORLD_SIZE", "2"},
                 {"LOCAL_WORLD_SIZE", "1"},
                 {"MASTER_ADDR", "10.232.7.1"},
                 {"MASTER_PORT", "29500"}});
    return RankProcesses("meets", 1, more);
  }
};

TEST_F(RankNetwork, LetsRanksMeetWhenOpen) {
  RankProcesses ranks = first_rank();
  ranks.start_another(1, on(1));
  for (const auto& result : ranks.finish()) EXPECT_EQ(result.exit_code, 0) << result.output;
}

struct Wall {
  std::string name;
  int at;
  std::string how, told;

  friend void PrintTo(const Wall& it, std::ostream* to) { *to << it.name; }
};
class BlockedNetwork : public RankNetwork, public ::testing::WithParamInterface<Wall> {};
INSTANTIATE_TEST_SUITE_P(Walls, BlockedNetwork,
                         ::testing::Values(Wall{"DropsAtRank0", 0, "drop", "no answer in 5 s"},
                                           Wall{"DropsAtRank1", 1, "drop", "no answer in 5 s"},
                                           Wall{"RejectsAtRank1", 1, "reject with tcp reset", "Connection refused"}),
                         [](const auto& entry) { return entry.param.name; });

TEST_P(BlockedNetwork, IsReportedWithBothEndsAtStart) {
  const auto& [name, at, how, told] = GetParam();
  close_ports(at, how);
  RankProcesses ranks = first_rank();
  ranks.start_another(1, on(1));
  const std::string from = std::to_string(1 - at), to = std::to_string(at);
  for (const auto& result : ranks.finish()) {
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::environment)) << result.output;
    EXPECT_LT(result.seconds, 20);
    EXPECT_THAT(result.output, ContainsRegex("rank " + from + " on .* cannot reach rank " + to + " on .* at 10.232.7." +
                                             std::to_string(at + 1) + ":[0-9]+ \\(" + told));
    EXPECT_THAT(result.output, Not(ContainsRegex("rank " + to + " on .* cannot reach")));
    EXPECT_THAT(result.output, HasSubstr("in both directions"));
  }
}

TEST_F(RankNetwork, ReportsCutLinkOnBothSides) {
  RankProcesses ranks = first_rank({{"TRAINS", "1"}, {"SILENCE_MILLISECONDS", "2500"}});
  ranks.start_another(1, on(1));
  for (const int rank : {0, 1}) ranks.wait_for_output(rank, "met");
  must({"/usr/sbin/ip", "-n", host(0), "link", "set", "cable0", "down"});
  const auto begin = std::chrono::steady_clock::now();
  const auto results = ranks.finish();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    EXPECT_EQ(results[rank].exit_code, static_cast<int>(ExitCode::restart)) << results[rank].output;
    EXPECT_THAT(results[rank].output,
                ContainsRegex("rank " + std::to_string(1 - rank) + " on .* has not been heard from for 2 s"));
  }
}

}  // namespace
}  // namespace gputrain::comm
