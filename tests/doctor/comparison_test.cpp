#include "gputrain/doctor/comparison.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gputrain::doctor {
namespace {

using ::testing::IsEmpty;
using ::testing::StartsWith;

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

TEST(Comparison, WarnsOfDifferentBuilds) {
  const Findings found = compare({host("h1", {{"build", "12ab"}}), host("h2", {{"build", "34cd"}})});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].verdict, Verdict::warn);
  EXPECT_EQ(found[0].fix, "install the same gputrain on all hosts");
}

TEST(Clocks, MayDifferByLessThanASecond) {
  EXPECT_THAT(clock_findings({{.host = "h1", .ahead = 0.9}, {.host = "h2", .ahead = -0.9}}), IsEmpty());
}

TEST(Clocks, AreNamedWhenOff) {
  const Findings found = clock_findings({{.host = "h1"}, {.host = "h2", .ahead = -5}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].verdict, Verdict::warn);
  EXPECT_THAT(found[0].text, StartsWith("the clock of h2 is 5.0s behind ours"));
}

TEST(Clocks, MayBeOffByWhatTheAnswerTook) {
  EXPECT_THAT(clock_findings({{.host = "h1", .ahead = 3, .doubt = 2.5}}), IsEmpty());
  EXPECT_EQ(clock_findings({{.host = "h1", .ahead = 3, .doubt = 1.5}}).size(), 1U);
}

TEST(Clocks, OfMostHostsAreRight) {
  const Findings found = clock_findings({{.host = "h1", .ahead = 60}, {.host = "h2", .ahead = 60.2}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].text, StartsWith("the clock of this machine is 1m0s behind that of most hosts"));
}

std::vector<HostReport> disks(const std::vector<double>& speeds) {
  std::vector<HostReport> reports;
  for (const double speed : speeds) {
    reports.push_back({.host = "h" + std::to_string(reports.size() + 1)});
    if (speed > 0) reports.back().write_speed = speed;
  }
  return reports;
}

TEST(Disks, MayWriteAtSimilarRates) {
  EXPECT_THAT(disk_findings(disks({400e6, 200e6, 0, 350e6})), IsEmpty());
  EXPECT_THAT(disk_findings(disks({400e6})), IsEmpty());
}

TEST(Disks, AreNamedWhenMuchSlowerThanOthers) {
  const Findings found = disk_findings(disks({400e6, 100e6, 0, 350e6}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].text, StartsWith("h2 writes 95.4 MiB/s, others "));
}

}  // namespace
}  // namespace gputrain::doctor
