#include "gputrain/launch/hosts.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"

namespace gputrain::launch {
namespace {

using ::testing::HasSubstr;

std::string told(const std::string& text) {
  std::string problem;
  const auto host = read_host(text, problem);
  return host ? host->name + " " + (host->ranks ? std::to_string(*host->ranks) : "-") : "refused: " + problem;
}

TEST(HostName, AcceptsUserAndRankCount) {
  EXPECT_EQ(told("node0"), "node0 -");
  EXPECT_EQ(told("node0:8"), "node0 8");
  EXPECT_EQ(told("me@node-0.example.org:16"), "me@node-0.example.org 16");
  EXPECT_EQ(told("10.0.0.4:2"), "10.0.0.4 2");
  EXPECT_EQ(told("[fe80::1%eth0]:4"), "[fe80::1%eth0] 4");
  EXPECT_EQ(told("[::1]"), "[::1] -");
}

TEST(HostName, RefusesNamesUnsafeForSshOrShell) {
  for (const char* name : {"-oProxyCommand=x",
                           "me@-x",
                           "-l@x",
                           "a b",
                           "$(x)",
                           "`x`",
                           "a;b",
                           "a|b",
                           "a&b",
                           "a/b",
                           "a\nb",
                           "a\tb",
                           "a\"b",
                           "a'b",
                           "a\\b",
                           "",
                           "@",
                           "a@",
                           "@a",
                           "a@b@c",
                           "[a",
                           "a]",
                           "[]",
                           "[[a]]",
                           "fe80::1",
                           "a:0",
                           "a:-1",
                           "a:4097",
                           "a:1x",
                           "a:",
                           ":4",
                           "\x7f"}) {
    EXPECT_THAT(told(name), HasSubstr("refused: ")) << name;
  }
  EXPECT_THAT(told(std::string(300, 'a')), HasSubstr("refused: "));
}

TEST(HostCount, IsANumberOrARange) {
  EXPECT_EQ(read_host_count("3")->least, 3);
  EXPECT_EQ(read_host_count("3")->most, 3);
  EXPECT_EQ(read_host_count("1:4")->least, 1);
  EXPECT_EQ(read_host_count("1:4")->most, 4);
  for (const char* text : {"", "0", "4:1", "0:2", "1:", ":1", "1:2:3", "1-2", "x"})
    EXPECT_FALSE(read_host_count(text)) << text;
}

class Hostfile : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::vector<Host> read(const std::string& content) {
    std::ofstream(path_) << content;
    return read_hostfile(path_);
  }
  std::string refusal(const std::string& content) {
    try {
      read(content);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return error.what();
    }
    return "was accepted";
  }
  std::string path_ = std::filesystem::temp_directory_path() / ("gputrain_hosts_" + std::to_string(getpid()));
};

TEST_F(Hostfile, AcceptsBothFormsOfRankCounts) {
  const auto hosts = read("# the cluster\nnode0 slots=8\n\n  node1:4   # a small one\nnode2\n");
  ASSERT_EQ(hosts.size(), 3U);
  EXPECT_EQ(hosts[0].ranks, 8);
  EXPECT_EQ(hosts[1].name, "node1");
  EXPECT_EQ(hosts[1].ranks, 4);
  EXPECT_FALSE(hosts[2].ranks);
}

TEST_F(Hostfile, NamesLineOfEachMistake) {
  EXPECT_THAT(refusal("node0\n-oProxyCommand=x\n"), HasSubstr(path_ + ":2"));
  EXPECT_THAT(refusal("node0 slots=0\n"), HasSubstr("slots=N"));
  EXPECT_THAT(refusal("node0 slots=2 max_slots=4\n"), HasSubstr("slots=N"));
  EXPECT_THAT(refusal("node0:2 slots=2\n"), HasSubstr("slots=N"));
  EXPECT_THAT(refusal("node0\nnode0\n"), HasSubstr("twice"));
  EXPECT_THAT(refusal("# nothing\n"), HasSubstr("names no host"));
  std::filesystem::remove(path_);
  EXPECT_THROW(read_hostfile(path_), Error);
}

TEST(HostPlan, UsesThisMachineWithoutHosts) {
  LaunchSpec spec;
  spec.nproc_per_node.value = 3;
  const HostPlan plan = plan_hosts(spec);
  ASSERT_EQ(plan.hosts.size(), 1U);
  EXPECT_TRUE(plan.hosts[0].is_here());
  EXPECT_EQ(plan.hosts[0].ranks, 3);
}

TEST(HostPlan, RefusesMoreHostsThanNamed) {
  LaunchSpec spec;
  spec.hosts = {"a", "b"};
  EXPECT_EQ(plan_hosts(spec).count.least, 2);
  spec.nnodes = "1:2";
  EXPECT_EQ(plan_hosts(spec).count.least, 1);
  spec.nnodes = "3";
  EXPECT_THROW(plan_hosts(spec), Error);
}

}  // namespace
}  // namespace gputrain::launch
