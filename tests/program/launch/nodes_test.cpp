// One launcher on each of two hosts, as schedulers start them: configured by variables, without ssh between the hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "support/needs.hpp"
#include "support/process_family.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"
#include "support/ssh_hosts.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using NodeVariables = std::map<std::string, std::string>;
using NodeSettings = std::vector<std::string>;

const NodeSettings kWithoutEnd{"train.max_steps=1000000", "eval.interval=null", "checkpoint.interval=20"};

class NodeLaunch : public ::testing::Test {
 protected:
  void SetUp() override {
    GPUTRAIN_SKIP_FOR(SshHosts::missing());
    hosts_.emplace(2);
  }

  NodeVariables of_torchrun(int node) const {
    return {{"PET_NNODES", "2"},
            {"PET_NODE_RANK", std::to_string(node)},
            {"PET_NPROC_PER_NODE", "2"},
            {"PET_MASTER_ADDR", hosts_->address_of(1)},
            {"PET_MASTER_PORT", "29400"}};
  }

  /// Starts the launcher of node 0 or 1.
  std::unique_ptr<Program> start(int node, const NodeVariables& variables, const NodeSettings& settings = {},
                                 const NodeSettings& options = {}) {
    NodeSettings command = hosts_->entering(node + 1);
    command.insert(command.end(), {gputrain_path(), "launch"});
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"run", job_, "--output-dir", run_});
    for (const auto& setting : settings) command.insert(command.end(), {"--set", setting});
    auto environment = family_.environment();
    environment["OMP_NUM_THREADS"] = "1";
    environment.insert(variables.begin(), variables.end());
    return std::make_unique<Program>(command, environment);
  }

  void start_both(const NodeSettings& settings, const NodeSettings& options = {}) {
    for (const int node : {1, 0}) node_[node] = start(node, of_torchrun(node), settings, options);
  }

  void expect_losses_of_one_process() {
    ASSERT_EQ(gputrain({"run", job_, "--output-dir", folder_ / "one"}).exit_code, 0);
    const auto expected = losses_of(folder_ / "one"), actual = losses_of(run_);
    ASSERT_EQ(actual.size(), 20U);
    for (size_t i = 0; i < 20; ++i) EXPECT_NEAR(actual[i], expected.at(i), 1e-9);
  }

  void expect_nothing_left() { EXPECT_TRUE(family_.ends_within(10)) << ::testing::PrintToString(family_.living()); }

  TemporaryFolder folder_;
  std::string run_ = folder_ / "run";
  std::string job_ = write_gpt_job(folder_, "log: {interval: 1}\n");
  std::optional<SshHosts> hosts_;
  ProcessFamily family_;
  std::unique_ptr<Program> node_[2];
};

struct NodeScheduler {
  std::string name;
  NodeVariables both, by_node[2];

  friend void PrintTo(const NodeScheduler& it, std::ostream* to) { *to << it.name; }
};

class ScheduledNodes : public NodeLaunch, public ::testing::WithParamInterface<NodeScheduler> {};
INSTANTIATE_TEST_SUITE_P(
    Schedulers, ScheduledNodes,
    ::testing::Values(NodeScheduler{"Torchrun",
                                    {{"PET_NNODES", "2"},
                                     {"PET_NPROC_PER_NODE", "2"},
                                     {"PET_MASTER_ADDR", "FIRST"},
                                     {"PET_MASTER_PORT", "29400"}},
                                    {{{"PET_NODE_RANK", "0"}}, {{"PET_NODE_RANK", "1"}}}},
                      NodeScheduler{"Kubeflow",
                                    {{"PET_NNODES", "2"},
                                     {"PET_NPROC_PER_NODE", "2"},
                                     {"PET_MASTER_ADDR", "FIRST"},
                                     {"PET_MASTER_PORT", "23456"},
                                     {"MASTER_ADDR", "FIRST"},
                                     {"MASTER_PORT", "23456"},
                                     {"WORLD_SIZE", "4"}},
                                    {{{"PET_NODE_RANK", "0"}, {"RANK", "0"}}, {{"PET_NODE_RANK", "1"}, {"RANK", "1"}}}},
                      NodeScheduler{"SkyPilot",
                                    {{"SKYPILOT_NUM_NODES", "2"},
                                     {"SKYPILOT_NODE_IPS", "FIRST\nSECOND"},
                                     {"SKYPILOT_NUM_GPUS_PER_NODE", "2"}},
                                    {{{"SKYPILOT_NODE_RANK", "0"}}, {{"SKYPILOT_NODE_RANK", "1"}}}},
                      NodeScheduler{"Dstack",
                                    {{"DSTACK_NODES_NUM", "2"},
                                     {"DSTACK_MASTER_NODE_IP", "FIRST"},
                                     {"DSTACK_NODES_IPS", "FIRST\nSECOND"},
                                     {"DSTACK_GPUS_PER_NODE", "2"}},
                                    {{{"DSTACK_NODE_RANK", "0"}}, {{"DSTACK_NODE_RANK", "1"}}}}),
    [](const auto& entry) { return entry.param.name; });

TEST_P(ScheduledNodes, TrainLikeOneProcess) {
  const auto with_addresses = [this](NodeVariables variables) {
    for (auto& [name, value] : variables) {
      for (const int host : {1, 2}) {
        const std::string word = host == 1 ? "FIRST" : "SECOND";
        if (const size_t at = value.find(word); at != std::string::npos)
          value.replace(at, word.size(), hosts_->address_of(host));
      }
    }
    return variables;
  };
  for (const int node : {1, 0}) {
    NodeVariables variables = with_addresses(GetParam().both);
    variables.insert(GetParam().by_node[node].begin(), GetParam().by_node[node].end());
    node_[node] = start(node, variables);
  }
  const Result first = node_[0]->wait(), second = node_[1]->wait();
  ASSERT_EQ(first.exit_code, 0) << first.out << first.err;
  EXPECT_EQ(second.exit_code, 0) << second.out << second.err;
  EXPECT_THAT(first.out, AllOf(HasSubstr("4 ranks on localhost:2, node 1:2"), HasSubstr("gloo over eth0 (10.231.")));
  EXPECT_THAT(second.out, AllOf(HasSubstr("node 1 of 2"), Not(HasSubstr("step"))));
  expect_losses_of_one_process();
  expect_nothing_left();
}

TEST_F(NodeLaunch, RestartsTogetherWhenARankDies) {
  start_both({"train.max_steps=200", "checkpoint.interval=20", "eval.interval=null"});
  ASSERT_TRUE(node_[0]->prints("step    50/"));
  kill(family_.rank(3), SIGKILL);
  ASSERT_TRUE(node_[0]->prints("start 2  "));
  const Result first = node_[0]->wait(), second = node_[1]->wait();
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(first.out, HasSubstr("rank 3 on node 1"));
  EXPECT_TRUE(std::filesystem::exists(run_ + "/logs/start_2/rank_0003.log"));
  EXPECT_EQ(gputrain({"data", "audit", run_}).exit_code, 0);
}

TEST_F(NodeLaunch, TakesBackNodeWhoseLauncherRestarts) {
  start_both({"train.max_steps=200", "checkpoint.interval=20", "eval.interval=null"});
  ASSERT_TRUE(node_[0]->prints("step    50/"));
  node_[1].reset();  // killed
  ASSERT_TRUE(node_[0]->prints("restart 1 of 3"));
  node_[1] = start(1, of_torchrun(1), {"train.max_steps=200", "checkpoint.interval=20", "eval.interval=null"});
  const Result first = node_[0]->wait(), second = node_[1]->wait();
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(first.out, HasSubstr("the host node 1 is lost"));
}

TEST_F(NodeLaunch, EndsWithTheFirstNode) {
  start_both(kWithoutEnd);
  ASSERT_TRUE(node_[0]->prints("step    5/"));
  node_[0].reset();  // killed
  const Result second = node_[1]->wait(20);
  EXPECT_EQ(second.exit_code, 138) << second.err;
  expect_nothing_left();
}

TEST_F(NodeLaunch, SavesOnceWhenAllNodesAreStopped) {
  start_both(kWithoutEnd);
  ASSERT_TRUE(node_[0]->prints("step    30/"));
  for (const auto& node : node_) node->signal(SIGTERM);
  const Result first = node_[0]->wait(30), second = node_[1]->wait(30);
  EXPECT_EQ(first.exit_code, 143) << first.err;
  EXPECT_EQ(second.exit_code, 143) << second.err;
  EXPECT_THAT(first.out, HasSubstr(", saved"));
  expect_nothing_left();
}

TEST_F(NodeLaunch, StopsAllNodesWhenOneIsStopped) {
  start_both(kWithoutEnd);
  ASSERT_TRUE(node_[0]->prints("step    5/"));
  node_[1]->signal(SIGINT);
  EXPECT_EQ(node_[0]->wait(30).exit_code, 130);
  EXPECT_EQ(node_[1]->wait(30).exit_code, 130);
}

TEST_F(NodeLaunch, EndsWithSameCodeWhenHopeless) {
  start_both({"data.train.path=/nowhere"});
  const Result first = node_[0]->wait(), second = node_[1]->wait();
  EXPECT_EQ(first.exit_code, 3) << first.err;
  EXPECT_EQ(second.exit_code, 3) << second.err;
}

TEST_F(NodeLaunch, RefusesNodeWithOtherJobWithoutDelay) {
  node_[0] = start(0, of_torchrun(0));
  const Result other_command = start(1, of_torchrun(1), {"seed=7"})->wait(60);
  EXPECT_EQ(other_command.exit_code, 2);
  EXPECT_THAT(other_command.err, HasSubstr("the command on node 0 differs from the one here"));
  auto three = of_torchrun(1);
  three["PET_NNODES"] = "3";
  const Result other_count = start(1, three)->wait(60);
  EXPECT_EQ(other_count.exit_code, 2);
  EXPECT_THAT(other_count.err, HasSubstr("the number of nodes on node 0 is '2', here '3'"));
  EXPECT_EQ(start(1, of_torchrun(1))->wait().exit_code, 0);
  EXPECT_EQ(node_[0]->wait().exit_code, 0);
}

TEST_F(NodeLaunch, IgnoresStrangersAtItsPort) {
  node_[0] = start(0, of_torchrun(0), {}, {});
  ASSERT_TRUE(node_[0]->prints("waiting for the other nodes"));
  const std::string door = "/dev/tcp/" + hosts_->address_of(1) + "/29400";
  const std::string strangers = "for i in 1 2 3; do exec {a}<>" + door + "; exec {b}<>" + door + "; exec {c}<>" + door +
                                "; echo 'GET / HTTP/1.1' >&$a; echo '{\"kind\":\"come\",\"node\":-5,\"nodes\":2}' >&$b;"
                                "head -c 3000000 /dev/zero >&$c; done";
  auto command = hosts_->entering(2);
  command.insert(command.end(), {"/bin/bash", "-c", strangers});
  Program(command).wait(20);
  EXPECT_EQ(start(1, of_torchrun(1))->wait().exit_code, 0);
  EXPECT_EQ(node_[0]->wait().exit_code, 0);
}

/// The most memory that a process had, in MiB.
int64_t most_memory_of(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) >> 10;
  return -1;
}

TEST_F(NodeLaunch, KeepsLittleOfWhatStrangersSendWithoutEnd) {
  start_both(kWithoutEnd);
  ASSERT_TRUE(node_[0]->prints("step    5/"));
  const int64_t before = most_memory_of(node_[0]->id());
  ASSERT_GT(before, 0);
  const std::string door = "/dev/tcp/" + hosts_->address_of(1) + "/29400";
  auto command = hosts_->entering(2);
  command.insert(command.end(), {"/bin/bash", "-c",
                                 "for i in {1..200}; do { exec 3<>" + door +
                                     "; head -c 15000000 /dev/zero >&3; read -t 10 <&3; } & done; wait"});
  Program(command).wait(60);
  EXPECT_LT(most_memory_of(node_[0]->id()), before + 100);
  node_[0]->forget_output();
  EXPECT_TRUE(node_[0]->prints("step ")) << "it trains on";
  node_[0]->signal(SIGTERM);
  const Result first = node_[0]->wait(30);
  EXPECT_EQ(first.exit_code, 143) << first.err;
  EXPECT_THAT(first.out, Not(HasSubstr("restart 1")));
  EXPECT_EQ(node_[1]->wait(30).exit_code, 143);
}

TEST_F(NodeLaunch, NamesNodesThatNeverCome) {
  node_[0] = start(0, of_torchrun(0), {"launch.host_timeout=2s"});
  const Result first = node_[0]->wait(30);
  EXPECT_EQ(first.exit_code, 6);
  EXPECT_THAT(first.err, HasSubstr("node 1: it has not connected"));
  const Result second = start(1, of_torchrun(1), {"launch.host_timeout=2s"})->wait(30);
  EXPECT_EQ(second.exit_code, 6);
  EXPECT_THAT(second.err, HasSubstr("node 0's launcher cannot be reached: Connection refused"));
}

TEST_F(NodeLaunch, StartsNothingOnContradictoryVariables) {
  auto variables = of_torchrun(1);
  variables["SKYPILOT_NODE_RANK"] = "0";
  const Result result = start(1, variables)->wait(30);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("PET_NODE_RANK=1"), HasSubstr("SKYPILOT_NODE_RANK=0")));
}

}  // namespace
}  // namespace gputrain::testing_support
