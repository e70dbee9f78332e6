#include "gputrain/launch/nodes.hpp"

#include <map>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/launch/launcher/join.hpp"
#include "gputrain/comm/sockets.hpp"
#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/launch/hosts.hpp"

namespace gputrain::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using NodeValues = std::map<std::string, std::string>;

Lookup lookup_in(const NodeValues& values) {
  return [&values](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
}

std::optional<NodeContext> context_of(const NodeValues& values) { return read_node(lookup_in(values)); }

/// "node/nodes ranks at address:port by scheduler"
std::string node_text(const NodeValues& values) {
  const auto context = context_of(values);
  if (!context) return "none";
  return std::to_string(context->node) + "/" + std::to_string(context->nodes) + " " +
         (context->ranks ? std::to_string(*context->ranks) : "-") + " at " + context->address + ":" +
         std::to_string(context->port) + " by " + context->scheduler;
}

std::string node_refusal(const NodeValues& values) {
  try {
    return "accepted: " + node_text(values);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
}

NodeValues changed(NodeValues values, const NodeValues& others) {
  for (const auto& [name, value] : others) values[name] = value;
  return values;
}

NodeValues torchruns() {
  return {{"PET_NNODES", "2"},
          {"PET_NODE_RANK", "1"},
          {"PET_NPROC_PER_NODE", "8"},
          {"PET_MASTER_ADDR", "job-master-0"},
          {"PET_MASTER_PORT", "23456"}};
}

NodeValues skypilots() {
  return {{"SKYPILOT_NODE_RANK", "1"},
          {"SKYPILOT_NUM_NODES", "2"},
          {"SKYPILOT_NODE_IPS", "10.0.0.4\n10.0.0.5"},
          {"SKYPILOT_NUM_GPUS_PER_NODE", "8"}};
}

NodeValues dstacks() {
  return {{"DSTACK_NODE_RANK", "1"},
          {"DSTACK_NODES_NUM", "2"},
          {"DSTACK_MASTER_NODE_IP", "10.0.0.4"},
          {"DSTACK_NODES_IPS", "10.0.0.4\n10.0.0.5"},
          {"DSTACK_GPUS_PER_NODE", "8"}};
}

NodeValues slurms(const std::string& tasks_per_node = "1(x2)") {
  return {{"SLURM_JOB_ID", "12"},          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "1"},           {"SLURM_NTASKS", "2"},
          {"SLURM_LOCALID", "0"},          {"SLURM_NODEID", "1"},
          {"SLURM_NNODES", "2"},           {"SLURM_STEP_TASKS_PER_NODE", tasks_per_node},
          {"SLURM_JOB_NODELIST", "n[1-2]"}};
}

TEST(NodeEnvironment, IsEmptyWithoutVariables) {
  EXPECT_EQ(node_text({}), "none");
  EXPECT_EQ(node_text({{"MASTER_ADDR", "x"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}}), "none");
}

TEST(NodeEnvironment, ReadsTorchrunVariables) {
  EXPECT_EQ(node_text(torchruns()), "1/2 8 at job-master-0:23456 by torchrun's variables");
  EXPECT_EQ(node_text(changed(torchruns(), {{"PET_NPROC_PER_NODE", "auto"}})),
            "1/2 - at job-master-0:23456 by torchrun's variables");
  // Kubeflow's trainer also sets RANK to the node's number, and WORLD_SIZE to the number of ranks on all nodes.
  EXPECT_EQ(node_text(changed(torchruns(), {{"RANK", "1"}, {"WORLD_SIZE", "16"}, {"MASTER_ADDR", "localhost"}})),
            "1/2 8 at job-master-0:23456 by torchrun's variables");
  EXPECT_EQ(node_text(changed(torchruns(), {{"PET_MASTER_ADDR", "[::1]"}})),
            "1/2 8 at ::1:23456 by torchrun's variables");
  EXPECT_EQ(node_text({{"PET_NPROC_PER_NODE", "4"}}), "0/1 4 at :0 by torchrun's variables");
}

TEST(NodeEnvironment, ReadsSkyPilot) {
  EXPECT_EQ(node_text(skypilots()), "1/2 8 at 10.0.0.4:29500 by SkyPilot");
  EXPECT_EQ(node_text(changed(skypilots(), {{"SKYPILOT_NUM_GPUS_PER_NODE", "0"}})),
            "1/2 - at 10.0.0.4:29500 by SkyPilot");
  EXPECT_EQ(node_text(changed(skypilots(), {{"MASTER_PORT", "8008"}})), "1/2 8 at 10.0.0.4:8008 by SkyPilot");
  NodeValues uncounted = skypilots();
  uncounted.erase("SKYPILOT_NUM_NODES");
  EXPECT_EQ(node_text(uncounted), "1/2 8 at 10.0.0.4:29500 by SkyPilot");
}

TEST(NodeEnvironment, ReadsDstack) {
  EXPECT_EQ(node_text(dstacks()), "1/2 8 at 10.0.0.4:29500 by dstack");
  NodeValues unlisted = dstacks();
  unlisted.erase("DSTACK_NODES_IPS");
  EXPECT_EQ(node_text(unlisted), "1/2 8 at 10.0.0.4:29500 by dstack");
}

TEST(NodeEnvironment, ReadsSlurmWithOneTaskPerNode) {
  EXPECT_EQ(node_text(slurms()), "1/2 - at n1:20192 by Slurm");
  EXPECT_EQ(context_of(slurms())->job, "Slurm job 12 step 0");
  EXPECT_THAT(node_refusal(changed(slurms("2(x2)"), {{"SLURM_NTASKS", "4"}})),
              AllOf(HasSubstr("2 tasks on this node"), HasSubstr("srun --ntasks-per-node=1 gputrain launch")));
}

TEST(NodeEnvironment, ListsAllocationOutsideOfSteps) {
  NodeValues batch = slurms();
  batch.erase("SLURM_STEP_ID");
  EXPECT_EQ(node_text(batch), "none");
  EXPECT_THAT(allocated_nodes(lookup_in(batch)), ElementsAre("n1", "n2"));
  const NodeValues step = slurms(), nothing;
  EXPECT_THAT(allocated_nodes(lookup_in(step)), IsEmpty());
  EXPECT_THAT(allocated_nodes(lookup_in(nothing)), IsEmpty());
}

TEST(NodeEnvironment, NamesMissingVariable) {
  const auto lacking = [](NodeValues values, const char* name) {
    values.erase(name);
    return node_refusal(values);
  };
  EXPECT_THAT(lacking(torchruns(), "PET_NNODES"), HasSubstr("PET_NNODES is unset"));
  EXPECT_THAT(lacking(torchruns(), "PET_NODE_RANK"), HasSubstr("PET_NODE_RANK is unset"));
  EXPECT_THAT(lacking(torchruns(), "PET_MASTER_ADDR"), HasSubstr("PET_MASTER_ADDR is unset"));
  EXPECT_THAT(lacking(skypilots(), "SKYPILOT_NODE_RANK"), HasSubstr("SKYPILOT_NODE_RANK is unset"));
  EXPECT_THAT(lacking(skypilots(), "SKYPILOT_NODE_IPS"), HasSubstr("SKYPILOT_NODE_IPS is unset"));
  EXPECT_THAT(lacking(dstacks(), "DSTACK_NODE_RANK"), HasSubstr("DSTACK_NODE_RANK is unset"));
  EXPECT_THAT(lacking(changed(dstacks(), {{"DSTACK_NODES_IPS", ""}}), "DSTACK_MASTER_NODE_IP"),
              HasSubstr("DSTACK_MASTER_NODE_IP is unset"));
}

TEST(NodeEnvironment, RefusesContradictionsShowingBothValues) {
  EXPECT_THAT(node_refusal(changed(torchruns(), {{"PET_NODE_RANK", "2"}})),
              AllOf(HasSubstr("PET_NODE_RANK=2"), HasSubstr("PET_NNODES=2")));
  EXPECT_THAT(node_refusal(changed(skypilots(), {{"SKYPILOT_NUM_NODES", "3"}})),
              AllOf(HasSubstr("has 2 addresses"), HasSubstr("SKYPILOT_NUM_NODES=3")));
  EXPECT_THAT(node_refusal(changed(dstacks(), {{"DSTACK_MASTER_NODE_IP", "10.0.0.5"}})),
              AllOf(HasSubstr("'10.0.0.5'"), HasSubstr("'10.0.0.4'")));
  EXPECT_THAT(node_refusal(changed(skypilots(), changed(torchruns(), {{"PET_NODE_RANK", "0"}}))),
              AllOf(HasSubstr("PET_NODE_RANK=0"), HasSubstr("SKYPILOT_NODE_RANK=1")));
  EXPECT_THAT(
      node_refusal(changed(slurms(), changed(dstacks(), {{"DSTACK_NODES_NUM", "2"}, {"DSTACK_NODE_RANK", "0"}}))),
      AllOf(HasSubstr("DSTACK_NODE_RANK=0"), HasSubstr("SLURM_PROCID=1")));
}

TEST(NodeEnvironment, CombinesSchedulersThatAgree) {
  EXPECT_EQ(node_text(changed(skypilots(), {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}, {"PET_NPROC_PER_NODE", "8"}})),
            "1/2 8 at 10.0.0.4:29500 by torchrun's variables");
}

TEST(NodeEnvironment, RefusesInvalidNumbersAndHosts) {
  for (const char* value : {"", "one", "-1", "1.5", "99999999999"}) {
    EXPECT_THAT(node_refusal(changed(torchruns(), {{"PET_NODE_RANK", value}})), HasSubstr("PET_NODE_RANK")) << value;
    EXPECT_THAT(node_refusal(changed(skypilots(), {{"SKYPILOT_NUM_GPUS_PER_NODE", value}})),
                HasSubstr("SKYPILOT_NUM_GPUS_PER_NODE"))
        << value;
  }
  EXPECT_THAT(node_refusal(changed(torchruns(), {{"PET_NNODES", "1:2"}})),
              AllOf(HasSubstr("PET_NNODES='1:2'"), HasSubstr("--nnodes MIN:MAX")));
  EXPECT_THAT(node_refusal(changed(torchruns(), {{"PET_NPROC_PER_NODE", "cpu"}})), HasSubstr("PET_NPROC_PER_NODE=cpu"));
  EXPECT_THAT(node_refusal(changed(torchruns(), {{"PET_MASTER_PORT", "0"}})), HasSubstr("PET_MASTER_PORT=0"));
  EXPECT_THAT(node_refusal(changed(torchruns(), {{"PET_MASTER_ADDR", "-oProxyCommand=x"}})), HasSubstr("no host name"));
}

TEST(NodeEnvironment, NeedsAllNodesUnlessTold) {
  const auto context = context_of(torchruns());
  LaunchSpec spec;
  EXPECT_EQ(plan_nodes(spec, *context).count.least, 2);
  EXPECT_EQ(plan_nodes(spec, *context).hosts[0].ranks, 8);
  spec.nproc_per_node.value = 4;
  spec.nnodes = "1:2";
  EXPECT_EQ(plan_nodes(spec, *context).count.least, 1);
  EXPECT_EQ(plan_nodes(spec, *context).hosts[0].ranks, 4);
  spec.nnodes = "3";
  EXPECT_THROW(plan_nodes(spec, *context), Error);
}

LaunchRequest second_of_two(uint16_t port) {
  LaunchRequest request;
  request.node = {
      .scheduler = "a test", .node = 1, .nodes = 2, .ranks = 1, .address = "127.0.0.1", .port = port, .job = {}};
  request.command = [] { return std::vector<std::string>{"run"}; };
  request.host_timeout_seconds = 0.3;
  return request;
}

TEST(NodeJoin, TellsOfStrangerThatSaysNothing) {
  const comm::ListeningSocket silent("127.0.0.1", 0);  // the kernel accepts for it
  ::testing::internal::CaptureStdout();
  try {
    join(second_of_two(silent.port()));
    ADD_FAILURE() << "joined";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::environment);
    EXPECT_THAT(error.what(), HasSubstr("node 0's launcher cannot be reached: connected, but no answer"));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("waiting for node 0 (connected, but no answer)"));
}

TEST(NodeJoin, GivesUpOnStrangerWithHalfALine) {
  comm::ListeningSocket listening("127.0.0.1", 0);
  const LaunchRequest request = second_of_two(listening.port());
  const Descriptor socket(listening.release());
  std::thread stranger([&] {
    const Descriptor visitor(::accept(socket.get(), nullptr, nullptr));
    EXPECT_EQ(::send(visitor.get(), "J", 1, MSG_NOSIGNAL), 1);  // databases send a greeting, too
    char byte = 0;
    while (::recv(visitor.get(), &byte, 1, 0) > 0) {
    }
  });
  EXPECT_THROW(join(request), Error);
  stranger.join();
}

}  // namespace
}  // namespace gputrain::launch
