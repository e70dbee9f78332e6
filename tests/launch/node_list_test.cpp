// Slurm's compact node lists: accepts what scontrol expands, and nothing else.
#include "gputrain/launch/node_list.hpp"

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/launch/environment/host_name.hpp"

namespace gputrain::launch {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<std::string> nodes(std::string_view text) {
  std::string problem;
  const auto hosts = expand_node_list(text, problem);
  EXPECT_TRUE(hosts) << text << ": " << problem;
  return hosts.value_or(std::vector<std::string>());
}

std::vector<int> counts(std::string_view text) {
  std::string problem;
  const auto numbers = expand_task_counts(text, problem);
  EXPECT_TRUE(numbers) << text << ": " << problem;
  return numbers.value_or(std::vector<int>());
}

TEST(NodeList, ExpandsRangesKeepingOrderAndWidth) {
  EXPECT_THAT(nodes("n1"), ElementsAre("n1"));
  EXPECT_THAT(nodes("n[1-3,7]"), ElementsAre("n1", "n2", "n3", "n7"));
  EXPECT_THAT(nodes("n[1-3,07],login"), ElementsAre("n1", "n2", "n3", "n07", "login"));
  EXPECT_THAT(nodes("gpu[098-101]"), ElementsAre("gpu098", "gpu099", "gpu100", "gpu101"));
  EXPECT_THAT(nodes("b,a[2,1]"), ElementsAre("b", "a2", "a1"));
  EXPECT_THAT(nodes("r[1-2]n[8-9].cluster"),
              ElementsAre("r1n8.cluster", "r1n9.cluster", "r2n8.cluster", "r2n9.cluster"));
}

TEST(NodeList, ExpandsLargestClusterButNoBomb) {
  EXPECT_THAT(nodes("n[00001-65536]"), SizeIs(65536));
  for (const char* bomb : {"n[1-999999999]", "n[1-65537]", "a,n[1-65536]", "a[1-300]b[1-300]", "n[1-60000,1-60000]",
                           "a[1-65536]b[1-65536]c[1-65536]d[1-65536]"}) {
    std::string problem;
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(expand_node_list(bomb, problem)) << bomb;
    EXPECT_THAT(problem, HasSubstr("more than 65536 hosts")) << bomb;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2)) << bomb;
  }
}

TEST(NodeList, RefusesMalformedListsAndNames) {
  const std::vector<std::string> wrong{"",
                                       ",",
                                       "n1,",
                                       ",n1",
                                       "n1,,n2",
                                       "n[",
                                       "n]",
                                       "n[1",
                                       "n1]",
                                       "n[[1]]",
                                       "n[1]]",
                                       "n[]",
                                       "n[1,]",
                                       "n[,1]",
                                       "n[-1]",
                                       "n[1-]",
                                       "n[3-1]",
                                       "n[1-2-3]",
                                       "n[a-b]",
                                       "n[1-2x]",
                                       "n[ 1]",
                                       "n[1..3]",
                                       "n[+1]",
                                       "-oProxy=x",
                                       "$(id)",
                                       "n1 n2",
                                       "n1;id",
                                       "`id`",
                                       "n1\nn2",
                                       "n1\x1b[2J",
                                       "n[0x1-0x2]",
                                       ".n",
                                       "n[1e9]",
                                       "(null)",
                                       "n/1",
                                       "n\x80",
                                       "-[1-2]",
                                       "n[1-2],-x",
                                       "n[1-2",
                                       "n[99999999999]",
                                       "n[4294967297]"};
  for (const auto& text : wrong) {
    std::string problem;
    EXPECT_FALSE(expand_node_list(text, problem)) << text;
    EXPECT_FALSE(problem.empty()) << text;
    for (const char c : problem) EXPECT_TRUE(c >= ' ' && c <= '~') << text;
  }
  std::string problem;
  EXPECT_FALSE(expand_node_list(std::string_view("n\0", 2), problem));
  EXPECT_FALSE(expand_node_list(std::string(300, 'a'), problem));
  EXPECT_FALSE(expand_node_list(std::string(200, 'a') + "[1]" + std::string(200, 'b') + "[1]", problem));
}

// For any bytes, the result is a list of host names within the limit, or a reason.
TEST(NodeList, AnswersAnyBytesWithListOrReason) {
  std::mt19937 random(1);
  const std::string_view letters = "n0129[]-,.x()\x80 $";
  int accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string text;
    for (auto length = random() % 12; length > 0; --length) text += letters[random() % letters.size()];
    std::string problem;
    if (const auto hosts = expand_node_list(text, problem)) {
      ++accepted;
      ASSERT_TRUE(!hosts->empty() && hosts->size() <= 65536) << text;
      for (const auto& host : *hosts) ASSERT_TRUE(is_host_name(host)) << text;
    } else {
      ASSERT_FALSE(problem.empty()) << text;
    }
    problem.clear();
    ASSERT_TRUE(expand_task_counts(text, problem).has_value() == problem.empty()) << text;
  }
  EXPECT_GT(accepted, 1000);
}

TEST(TaskCounts, ExpandRepetitions) {
  EXPECT_THAT(counts("4"), ElementsAre(4));
  EXPECT_THAT(counts("2,1"), ElementsAre(2, 1));
  EXPECT_THAT(counts("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(counts("8(x65536)"), AllOf(SizeIs(65536), Each(8)));
}

TEST(TaskCounts, RefuseMalformedTextAndBombs) {
  for (const char* text : {"", ",", "2,", "2(", "2(x", "2(x)", "2(x0)", "2(x3", "2(3)", "(x3)", "-1", "2(x-1)", "2 ",
                           "two", "1(x65537)", "1(x999999999)", "1(x9999999999)", "1,1(x65536)", "2(x3)4"}) {
    std::string problem;
    EXPECT_FALSE(expand_task_counts(text, problem)) << text;
    EXPECT_FALSE(problem.empty()) << text;
  }
}

}  // namespace
}  // namespace gputrain::launch
