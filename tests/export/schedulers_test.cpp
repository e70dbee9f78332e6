#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/export/schedulers/text.hpp"

namespace gputrain::app {
namespace {

using ::testing::ElementsAre;

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 256> buffer{};
  for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) text.append(buffer.data(), got);
  ::pclose(pipe);
  return text;
}

TEST(SchedulerText, PutsValuesInTheirPlaces) {
  const TextValues values{{"NAME", "x"}, {"LINES", "a\n\nb: @NAME@\n"}, {"NOTHING", ""}};
  EXPECT_EQ(filled("k: [@NAME@, @NAME@]\n", values), "k: [x, x]\n");
  EXPECT_EQ(filled("k:\n  @LINES@\nend\n", values), "k:\n  a\n\n  b: @NAME@\nend\n") << "values are not read again";
  EXPECT_EQ(filled("a\n  @NOTHING@\nb\n", values), "a\nb\n");
  EXPECT_EQ(filled("USR1@@NAME@ me@host @OTHER@\n", values), "USR1@x me@host @OTHER@\n");
}

TEST(SchedulerText, QuotesForShellAndYaml) {
  const std::vector<std::string> words{"plain-1.0/x", "",   "it's", "a b",  "$HOME", "`id`",
                                       "\"",          "\\", "#x",   "a\nb", "~"};
  std::string expected;
  for (const std::string& word : words) expected += word + "|";
  EXPECT_EQ(output_of("printf '%s|' " + shell_words(words)), expected);
  EXPECT_EQ(shell_words({"gputrain", "--set", "a.b=1"}), "gputrain --set a.b=1");
  EXPECT_EQ(yaml_list({"yes", "a: b", "\"\n"}), R"(["yes", "a: b", "\"\n"])");
  EXPECT_EQ(comment("a\nb"), "# a?b\n");
}

TEST(SchedulerText, StartsAgainOnlyAfterCode138) {
  const auto starts = [](const std::string& codes) {  // of a command that ends with these codes, one after the other
    return output_of("sh -c 'codes=\"" + codes +
                     "\"; many() { set -- $codes; now=$1; shift; codes=\"$*\"; echo $now; return $now; }\n" +
                     repeated("many") + "'; echo end $?");
  };
  EXPECT_EQ(starts("0"), "0\nend 0\n");
  EXPECT_EQ(starts("2 0"), "2\nend 2\n");
  EXPECT_EQ(starts("138 138 143 0"), "138\n138\n143\nend 143\n");
}

TEST(SchedulerText, KnowsWhatLiesInVolumes) {
  JobFacts facts;
  facts.volumes = {{.name = "work", .path = "/work"}, {.name = "data", .path = "/data"}};
  EXPECT_EQ(path_in_container(facts, "runs/x"), "/work/runs/x");
  EXPECT_EQ(path_in_container(facts, ""), "/work");
  EXPECT_TRUE(is_in_volume(facts, "runs/x"));
  EXPECT_TRUE(is_in_volume(facts, "/data/a.txt"));
  EXPECT_FALSE(is_in_volume(facts, "/data2/a.txt"));
  EXPECT_FALSE(is_in_volume(facts, "../runs/x"));
  facts.volumes.clear();
  EXPECT_FALSE(is_in_volume(facts, "/data/a.txt"));
}

TEST(SchedulerText, StartsOneLauncherWithTheSettings) {
  JobFacts facts;
  facts.set = {"seed=7"};
  EXPECT_THAT(launch_command(facts, "/job"), ElementsAre("gputrain", "launch", "run", "/job", "--set", "seed=7"));
}

}  // namespace
}  // namespace gputrain::app
