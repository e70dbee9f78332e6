// How ranks find each other, and what they say when they do not.
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::comm {
namespace {

using gputrain::testing::join;
using gputrain::testing::RankBody;
using gputrain::testing::RankProcesses;
using ::testing::HasSubstr;

// Local addresses of this process's listening TCP sockets, in the kernel's hexadecimal ("0100007F" is 127.0.0.1).
std::vector<std::string> listening_addresses() {
  std::vector<std::string> addresses;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state;
      fields >> number >> local >> remote >> state;
      const bool listens = state == "0A";
      if (listens) addresses.push_back(local);
    }
  }
  return addresses;
}

const RankBody meets{"meets", [] {
                       ProcessGroups groups = join(std::chrono::seconds(3));
                       groups.control().barrier("end");
                       std::printf("met %d %s\n", groups.world_size(), groups.description().c_str());
                       return 0;
                     }};

TEST(Meeting, ServesOnTheMastersAddressAndNoOther) {
  const std::vector<std::string> before = listening_addresses();
  RankProcesses ranks("serves", 2);
  ranks.wait_for_output(0, "open");
  for (const std::string& address : listening_addresses()) {
    if (std::find(before.begin(), before.end(), address) != before.end()) continue;
    EXPECT_TRUE(address.starts_with("0100007F:")) << address << " is not 127.0.0.1";
  }
  const auto results = ranks.finish();
  EXPECT_THAT(results[0].output, HasSubstr("gloo over lo (127.0.0.1)"));
}

const RankBody serves{"serves", [] {
                        ProcessGroups groups = join(std::chrono::seconds(3));
                        groups.control().barrier("start");
                        std::printf("open %s\n", groups.description().c_str());
                        std::fflush(stdout);
                        std::this_thread::sleep_for(std::chrono::seconds(1));
                        groups.control().barrier("end");
                        return 0;
                      }};

TEST(Meeting, AMissingRankIsNamedAtTheDeadline) {
  RankProcesses ranks("meets", 3);
  ranks.kill(1, SIGKILL);
  const auto results = ranks.finish();
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(results[rank].exit_code, static_cast<int>(ExitCode::restart)) << results[rank].output;
  }
  EXPECT_THAT(results[0].output, HasSubstr("in vain for rank 1 of 3"));
}

TEST(Meeting, WithoutRankZeroTheOthersSayThatItCannotBeReached) {
  RankProcesses ranks("meets", 2);
  ranks.kill(0, SIGKILL);
  const auto results = ranks.finish();
  EXPECT_EQ(results[1].exit_code, static_cast<int>(ExitCode::restart)) << results[1].output;
  EXPECT_THAT(results[1].output, HasSubstr("rank 0"));
}

TEST(Meeting, TwoProcessesOfOneRankAreAUsageError) {
  RankProcesses ranks("serves", 2);
  ranks.wait_for_output(0, "open");
  ranks.start_another(1);
  const auto results = ranks.finish();
  EXPECT_EQ(results[2].exit_code, static_cast<int>(ExitCode::usage)) << results[2].output;
  EXPECT_THAT(results[2].output, HasSubstr("two processes say RANK=1"));
  EXPECT_EQ(results[0].exit_code, 0) << results[0].output;
}

TEST(Meeting, APortInUseIsAnEnvironmentErrorThatNamesIt) {
  RankProcesses ranks("serves", 2);
  ranks.wait_for_output(0, "open");
  ranks.start_another(0);
  const auto results = ranks.finish();
  EXPECT_EQ(results[2].exit_code, static_cast<int>(ExitCode::environment)) << results[2].output;
  EXPECT_THAT(results[2].output, HasSubstr("cannot listen on 127.0.0.1 port"));
}

TEST(Meeting, RanksOfDifferentWorldsContradictEachOther) {
  RankProcesses ranks("meets", 2);
  ranks.kill(1, SIGKILL);
  ranks.start_another(1, {{"WORLD_SIZE", "3"}});
  const auto results = ranks.finish();
  EXPECT_EQ(results[0].exit_code, static_cast<int>(ExitCode::usage)) << results[0].output;
  EXPECT_THAT(results[0].output, HasSubstr("WORLD_SIZE=2"));
  EXPECT_THAT(results[0].output, HasSubstr("WORLD_SIZE=3"));
  EXPECT_NE(results[2].exit_code, 0);
}

TEST(Meeting, ANameNobodyKnowsIsAnEnvironmentError) {
  RankProcesses ranks("meets", 1, {{"MASTER_ADDR", "no-such-host.invalid"}, {"WORLD_SIZE", "2"}});
  const auto results = ranks.finish();
  EXPECT_EQ(results[0].exit_code, static_cast<int>(ExitCode::environment)) << results[0].output;
  EXPECT_THAT(results[0].output, HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace gputrain::comm
