// Rendezvous: how ranks find each other, and what they report if they do not.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

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
using ::testing::Not;

// Inodes of this process's sockets.
std::set<std::string> own_sockets() {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

// Local addresses of this process's listening TCP sockets, in the kernel's hexadecimal: "0100007F:7530" is
// 127.0.0.1:30000.
std::vector<std::string> listening_addresses() {
  const std::set<std::string> own = own_sockets();
  std::vector<std::string> addresses;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
      const bool listens = state == "0A";
      if (listens && own.contains(inode)) addresses.push_back(local);
    }
  }
  return addresses;
}

const RankBody meets("meets", [] {
  ProcessGroups groups = join();
  groups.control().barrier("end");
  std::printf("met %d %s\n", groups.world_size(), groups.description().c_str());
  return 0;
});

const RankBody serves("serves", [] {
  ProcessGroups groups = join();
  groups.control().barrier("start");
  for (const std::string& address : listening_addresses()) std::printf("listens %s\n", address.c_str());
  std::printf("open %s\n", groups.description().c_str());
  std::fflush(stdout);
  ::pause();  // until the test kills it
  return 0;
});

// Kills the two ranks of "serves", which must still be running.
std::vector<gputrain::testing::RankResult> end_servers(RankProcesses& ranks) {
  for (int rank = 0; rank < 2; ++rank) ranks.kill(rank, SIGTERM);
  auto results = ranks.finish();
  for (size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(results[rank].signal, SIGTERM) << results[rank].output;
  return results;
}

// For ranks that a test stops before they meet, or finds by their command line.
const std::pair<const std::string, std::string> kFromDisk{"GPUTRAIN_COLD_STARTS", "1"};

TEST(Meeting, ListensOnlyOnTheMasterAddress) {
  RankProcesses ranks("serves", 2);
  for (int rank = 0; rank < 2; ++rank) ranks.wait_for_output(rank, "open");
  for (const auto& result : end_servers(ranks)) {
    EXPECT_THAT(result.output, HasSubstr("listens 0100007F:"));
    EXPECT_THAT(result.output, Not(HasSubstr("listens 0000")));
    EXPECT_THAT(result.output, HasSubstr("gloo over lo (127.0.0.1)"));
  }
}

TEST(Meeting, NamesMissingRankAtDeadline) {
  RankProcesses ranks("meets", 3, {{"START_SECONDS", "5"}, kFromDisk});
  ranks.kill(1, SIGKILL);
  const auto results = ranks.finish();
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(results[rank].exit_code, static_cast<int>(ExitCode::restart)) << results[rank].output;
  }
  EXPECT_THAT(results[0].output, HasSubstr("but rank 1 of 3 did not come"));
}

TEST(Meeting, ReportsUnreachableRankZero) {
  RankProcesses ranks("meets", 2, {{"START_SECONDS", "2"}, kFromDisk});
  ranks.kill(0, SIGKILL);
  const auto results = ranks.finish();
  EXPECT_EQ(results[1].exit_code, static_cast<int>(ExitCode::restart)) << results[1].output;
  EXPECT_THAT(results[1].output, HasSubstr("rank 0"));
}

TEST(Meeting, RefusesSecondProcessOfARank) {
  RankProcesses ranks("serves", 2);
  for (int rank = 0; rank < 2; ++rank) ranks.wait_for_output(rank, "open");
  ranks.start_another(1);
  ranks.wait_for_end(2);
  const auto results = end_servers(ranks);
  EXPECT_EQ(results[2].exit_code, static_cast<int>(ExitCode::usage)) << results[2].output;
  EXPECT_THAT(results[2].output, HasSubstr("two processes have RANK=1"));
  EXPECT_THAT(results[2].output, HasSubstr("an earlier one, process " + std::to_string(ranks.process(1))));
}

TEST(Meeting, RefusesRankOfAnotherJobAndNamesJob) {
  RankProcesses ranks("serves", 2, {{"JOB", "Slurm job 12 step 0"}});
  ranks.wait_for_output(0, "open");
  ranks.wait_for_output(1, "open");
  ranks.start_another(1, {{"JOB", "Slurm job 637 step 0"}});
  ranks.wait_for_end(2);
  const auto results = end_servers(ranks);
  EXPECT_EQ(results[2].exit_code, static_cast<int>(ExitCode::usage)) << results[2].output;
  EXPECT_THAT(results[2].output,
              HasSubstr("is used by another job: Slurm job 12 step 0, process " + std::to_string(ranks.process(0))));
  EXPECT_THAT(results[2].output, HasSubstr("this job is Slurm job 637 step 0"));
}

TEST(Meeting, CountsArrivalsAloud) {
  RankProcesses ranks("meets", 3, {kFromDisk});
  ranks.kill(1, SIGSTOP);
  ranks.kill(2, SIGSTOP);
  ranks.wait_for_output(0, "1/3 ranks, waiting for rank 1, 2");
  ranks.kill(2, SIGCONT);
  ranks.wait_for_output(0, "2/3 ranks, waiting for rank 1");
  ranks.kill(1, SIGCONT);
  const auto results = ranks.finish();
  for (const auto& result : results) EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(results[2].output, Not(HasSubstr("waiting")));
}

TEST(Meeting, NamesPortInUse) {
  RankProcesses ranks("serves", 2, {kFromDisk});
  for (int rank = 0; rank < 2; ++rank) ranks.wait_for_output(rank, "open");
  ranks.start_another(0);
  ranks.wait_for_end(2);
  const auto results = end_servers(ranks);
  EXPECT_EQ(results[2].exit_code, static_cast<int>(ExitCode::environment)) << results[2].output;
  EXPECT_THAT(results[2].output, HasSubstr("cannot listen on 127.0.0.1 port"));
  EXPECT_THAT(results[2].output, HasSubstr("it is used by process " + std::to_string(ranks.process(0)) + ", "));
  EXPECT_THAT(results[2].output, HasSubstr("--body serves"));
}

TEST(Meeting, RefusesRanksOfOtherWorldSize) {
  RankProcesses ranks("meets", 2, {{"START_SECONDS", "5"}, kFromDisk});
  ranks.kill(1, SIGKILL);
  ranks.start_another(1, {{"WORLD_SIZE", "3"}});
  const auto results = ranks.finish();
  EXPECT_EQ(results[0].exit_code, static_cast<int>(ExitCode::usage)) << results[0].output;
  EXPECT_THAT(results[0].output, HasSubstr("WORLD_SIZE=2"));
  EXPECT_THAT(results[0].output, HasSubstr("WORLD_SIZE=3"));
  EXPECT_NE(results[2].exit_code, 0);
}

TEST(Meeting, RefusesTwoRanksOnOneGpu) {
  RankProcesses ranks("meets", 2, {{"GPU", "c0ffee"}});
  for (const auto& result : ranks.finish()) {
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::environment)) << result.output;
    EXPECT_THAT(result.output, HasSubstr("two ranks have the same GPU: rank 0 and rank 1 on "));
  }
}

TEST(Meeting, ReportsUnknownHostName) {
  RankProcesses ranks("meets", 1,
                      {{"MASTER_ADDR", "no-such-host.invalid"}, {"WORLD_SIZE", "2"}, {"START_SECONDS", "1"}});
  const auto results = ranks.finish();
  EXPECT_EQ(results[0].exit_code, static_cast<int>(ExitCode::environment)) << results[0].output;
  EXPECT_THAT(results[0].output, HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace gputrain::comm
