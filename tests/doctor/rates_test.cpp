#include "gputrain/doctor/rates.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "../../src/doctor/network_rate.hpp"
#include "doctor/made_machine.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class BestRatesFile : public testing::MadeMachine {
 protected:
  BestRates file() const {
    return BestRates([this](const char* name) {
      return std::string(name) == "XDG_STATE_HOME" ? std::optional(root_) : std::nullopt;
    });
  }
};

launch::MachineRates machine(double copy) {
  return {.kind = "a machine",
          .rates = {{.of = "memory", .what = "copy", .per_second = copy, .text = bytes_text(copy)}}};
}

TEST_F(BestRatesFile, KeepsTheBestOfEachKind) {
  EXPECT_THAT(file().of("a machine"), IsEmpty());
  for (const double rate : {5e9, 7e9, 6e9}) EXPECT_EQ(file().keep(machine(rate)), "");
  EXPECT_THAT(file().of("a machine"), ElementsAre(Pair("copy", 7e9)));
  EXPECT_THAT(file().of("another machine"), IsEmpty());
}

TEST_F(BestRatesFile, TakesNothingFromOtherFiles) {
  write("/gputrain/machines.json", R"({"kinds": {"a machine": {"copy": "fast", "other": -1}}})");
  EXPECT_THAT(file().of("a machine"), IsEmpty());
  write("/gputrain/machines.json", "{");
  EXPECT_THAT(file().of("a machine"), IsEmpty());
  EXPECT_EQ(file().keep(machine(5e9)), "");
  EXPECT_THAT(file().of("a machine"), ElementsAre(Pair("copy", 5e9)));
}

TEST_F(BestRatesFile, SaysWhyNothingIsKept) {
  write("/gputrain", "a file");
  EXPECT_THAT(file().keep(machine(5e9)), HasSubstr("gputrain: "));
  const BestRates homeless([](const char*) { return std::optional<std::string>(); });
  EXPECT_EQ(homeless.keep(machine(5e9)), "HOME is not set");
}

TEST(RateFindings, JudgeByTheBest) {
  launch::MachineRates rates = machine(5e9);
  EXPECT_EQ(rate_findings(rates, 80).at(0).text, "copy  5 GB/s, the first measured of this kind");
  rates.best = {{"copy", 6e9}};
  EXPECT_EQ(rate_findings(rates, 80).at(0).verdict, Verdict::ok);
  EXPECT_THAT(rate_findings(rates, 80).at(0).text, HasSubstr("83 % of the best of its kind, 6 GB/s"));
  rates.best = {{"copy", 10e9}};
  EXPECT_EQ(rate_findings(rates, 80).at(0).verdict, Verdict::bad);
  EXPECT_EQ(rate_findings(rates, 50).at(0).verdict, Verdict::ok);
}

TEST_F(BestRatesFile, FindsFileSystems) {
  std::filesystem::create_directories(root_ + "/data/set");
  const std::string data = std::filesystem::canonical(root_).string() + "/data";
  write("/proc/self/mountinfo", "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n36 22 0:33 / " + data +
                                    " rw,relatime shared:7 - nfs4 server:/data rw");
  EXPECT_EQ(file_system_of(data + "/set", root_), "nfs4");
  EXPECT_EQ(file_system_of(data, root_), "nfs4");
  EXPECT_EQ(file_system_of(data + "base", root_), "ext4");
  EXPECT_EQ(file_system_of(data, root_ + "/nowhere"), "");
}

TEST(NetworkRate, IsMeasuredOverAConnection) {
  const Drain drain("127.0.0.1");
  EXPECT_GT(send_rate("127.0.0.1", drain.port()), 1e6);
}

TEST(NetworkRate, NeedsAnEndThatListens) { EXPECT_THROW(send_rate("127.0.0.1", 1), Error); }

}  // namespace
}  // namespace gputrain::doctor
