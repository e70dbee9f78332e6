#include "gputrain/doctor/comparison.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gputrain::doctor {
namespace {

using ::testing::IsEmpty;

HostReport host(const std::string& name, std::map<std::string, std::string> facts) {
  return {.host = name, .findings = {{.check = "any", .facts = std::move(facts)}}};
}

TEST(Comparison, FindsNothingBetweenEqualHosts) {
  EXPECT_THAT(compare({host("h1", {{"MTU", "9000"}}), host("h2", {{"MTU", "9000"}})}), IsEmpty());
}

TEST(Comparison, NamesTheOddHost) {
  const Findings found =
      compare({host("h1", {{"MTU", "9000"}}), host("h2", {{"MTU", "1500"}}), host("h3", {{"MTU", "9000"}})});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].text, "MTU: 1500 on h2, but 9000 on all others");
  EXPECT_EQ(found[0].verdict, Verdict::warn);
}

TEST(Comparison, NamesAllHostsWithoutMajority) {
  const Findings found = compare({host("h1", {{"cores", "8"}}), host("h2", {})});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].text, "cores: 8 on h1; none on h2");
}

TEST(Comparison, RefusesDifferentPrograms) {
  EXPECT_EQ(compare({host("h1", {{"torch", "2.11.0"}}), host("h2", {{"torch", "2.10.0"}})}).at(0).verdict,
            Verdict::bad);
}

TEST(Comparison, LeavesOutHostsWithoutReport) {
  HostReport away = host("h2", {});
  away.problem = "no route";
  EXPECT_THAT(compare({host("h1", {{"cores", "8"}}), away}), IsEmpty());
}

TEST(Comparison, WarnsOfClocksThatDiffer) {
  EXPECT_EQ(clock_finding("h2", 0.02).verdict, Verdict::ok);
  EXPECT_EQ(clock_finding("h2", -5).verdict, Verdict::warn);
  EXPECT_EQ(clock_finding("h2", -5).text, "the clock of h2 is 5.0s behind ours: logs of hosts will not match");
}

}  // namespace
}  // namespace gputrain::doctor
