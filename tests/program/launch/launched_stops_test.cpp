// Stops of ranks under the launcher: on request, together, and with a saved checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "support/launched.hpp"
#include "support/sanitizers.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Request {
  int signal, exit_code;

  friend void PrintTo(const Request& it, std::ostream* to) { *to << sigabbrev_np(it.signal); }
};
class LaunchedStop : public ::testing::TestWithParam<Request> {};
INSTANTIATE_TEST_SUITE_P(Signals, LaunchedStop,
                         ::testing::Values(Request{SIGTERM, 143}, Request{SIGINT, 130}, Request{SIGUSR1, 138},
                                           Request{SIGHUP, 143}),
                         [](const auto& entry) { return std::string(sigabbrev_np(entry.param.signal)); });

TEST_P(LaunchedStop, SavesAndRestartsNothing) {
  const TemporaryFolder folder;
  Launched launched(folder, {}, kEndless);
  ASSERT_TRUE(launched.program().prints("step    20/"));
  launched.program().signal(GetParam().signal);
  const Result result = launched.program().wait(30);
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result.err;
  EXPECT_THAT(result.out, HasSubstr(", saved"));
  EXPECT_THAT(result.err, Not(HasSubstr("cause")));
  EXPECT_THAT(launched.family().living(), IsEmpty());
  EXPECT_TRUE(fs::exists(launched.run() + "/ckpt/latest"));
}

TEST(LauncherStop, EndsAtOnceBeforeRanksStart) {
  for (const auto& [signal, exit_code] : {Request{SIGTERM, 143}, Request{SIGUSR1, 138}}) {
    const TemporaryFolder folder;
    Launched launched(folder, {}, kEndless);
    ASSERT_GT(launched.family().agent(), 0);
    launched.program().signal(signal);
    const Result result = launched.program().wait(20);
    // Before the launcher listens, the signal itself ends it.
    EXPECT_TRUE(result.exit_code == exit_code || result.exit_code == 128 + signal) << result.exit_code << result.err;
    EXPECT_TRUE(launched.family().ends_within(10)) << ::testing::PrintToString(launched.family().living());
  }
}

TEST(LauncherStop, EndsRunAtMaxDuration) {
  const TemporaryFolder folder;
  const std::string duration = std::to_string(gputrain::testing::patience(6)) + "s";
  Launched launched(folder, {}, kEndless + Words{"limits.max_duration=" + duration, "checkpoint.resume=never"});
  const Result result = launched.program().wait(60);
  EXPECT_EQ(result.exit_code, 138) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("limits.max_duration reached, saved"),
                                HasSubstr("the same command without checkpoint.resume goes on from step"),
                                HasSubstr("the ranks have made way; exit 138"), Not(HasSubstr("start 2  "))));
  EXPECT_THAT(result.err, Not(HasSubstr("cause")));
}

TEST(LauncherStop, KillsRanksAfterGraceAndSaysSo) {
  const TemporaryFolder folder;
  Launched launched(folder, {}, kEndless + Words{"launch.grace=2s"});
  ASSERT_TRUE(launched.program().prints("step    7/"));
  kill(launched.family().rank(1), SIGSTOP);
  launched.program().signal(SIGTERM);
  const Result result = launched.program().wait(20);
  EXPECT_EQ(result.exit_code, 138);
  EXPECT_THAT(result.err, HasSubstr("rank 1 on localhost did not end in time (launch.grace)"));
  EXPECT_THAT(launched.family().living(), IsEmpty());
}

/// Waits until a signal is pending for the stopped rank.
void wait_for_a_signal_to(pid_t rank) {
  const std::string none_waits = "ShdPnd:\t0000000000000000";
  while (read_file("/proc/" + std::to_string(rank) + "/status").find(none_waits) != std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(LauncherStop, ReportsRankKilledBeforeSaving) {
  const TemporaryFolder folder;
  Launched launched(folder, {}, kEndless);
  ASSERT_TRUE(launched.program().prints("step    7/"));
  const pid_t rank = launched.family().rank(1);
  kill(rank, SIGSTOP);
  ASSERT_TRUE(launched.program().prints("was stopped by SIGSTOP"));  // all of its threads are stopped
  launched.program().signal(SIGTERM);
  wait_for_a_signal_to(rank);
  kill(rank, SIGKILL);  // as the kernel does when memory runs out
  const Result result = launched.program().wait(30);
  EXPECT_EQ(result.exit_code, 138) << result.err;
  EXPECT_THAT(result.err, HasSubstr("cause   rank 1 on localhost"));
  EXPECT_THAT(result.out, Not(HasSubstr("stopped on request")));
}

TEST(LauncherStop, FollowsRanksThatAgreedToYield) {
  const TemporaryFolder folder;
  Launched launched(folder, {}, kEndless);
  ASSERT_TRUE(launched.program().prints("step    7/"));
  const std::vector<pid_t> ranks{launched.family().rank(0), launched.family().rank(1)};
  for (const pid_t rank : ranks) kill(rank, SIGSTOP);
  for (const std::string rank : {"0", "1"})
    ASSERT_TRUE(launched.program().prints("rank " + rank + " on localhost was stopped by SIGSTOP"));
  launched.program().signal(SIGTERM);
  for (const pid_t rank : ranks) wait_for_a_signal_to(rank);
  for (const pid_t rank : ranks) kill(rank, SIGRTMIN + 6);
  for (const pid_t rank : ranks) kill(rank, SIGCONT);
  const Result result = launched.program().wait(30);
  EXPECT_EQ(result.exit_code, 138) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("cause")));
  EXPECT_THAT(result.out, AllOf(HasSubstr("exit 138"), Not(HasSubstr("stopped on request"))));
}

/// The result after these signals to the launcher, if a rank needs three seconds to save.
Result stopped_by(const std::vector<int>& signals) {
  const TemporaryFolder folder;
  Launched launched(folder, {}, kEndless);
  EXPECT_TRUE(launched.program().prints("step    7/"));
  const pid_t rank = launched.family().rank(1);
  kill(rank, SIGSTOP);
  for (const int signal : signals) {
    launched.program().signal(signal);
    std::this_thread::sleep_for(1500ms);
  }
  kill(rank, SIGCONT);  // a rank that was hurried no longer exists
  return launched.program().wait(30);
}

TEST(LauncherStop, IgnoresSecondSchedulerSignal) {
  const Result result = stopped_by({SIGUSR1, SIGTERM});
  EXPECT_EQ(result.exit_code, 138) << result.err;
  EXPECT_THAT(result.out, HasSubstr(", saved"));
  EXPECT_THAT(result.err, Not(HasSubstr("cause")));
}

TEST(LauncherStop, LeavesTimeToSaveWhenAllGetSigterm) {
  const TemporaryFolder folder;
  Launched launched(folder, {}, kEndless);
  ASSERT_TRUE(launched.program().prints("step    7/"));
  const pid_t rank = launched.family().rank(1);
  kill(rank, SIGSTOP);
  for (const pid_t process : {launched.program().id(), launched.family().agent(), launched.family().rank(0), rank})
    kill(process, SIGTERM);  // as a service manager or a batch system does
  std::this_thread::sleep_for(6s);
  kill(rank, SIGCONT);  // a rank that was killed meanwhile saves nothing
  const Result result = launched.program().wait(30);
  EXPECT_EQ(result.exit_code, 143) << result.err;
  EXPECT_THAT(result.out, HasSubstr(", saved"));
  EXPECT_TRUE(fs::exists(launched.run() + "/ckpt/latest"));
}

TEST(LauncherStop, SavesWhenAllGetSigint) {
  const TemporaryFolder folder;
  Launched launched(folder, {}, kEndless);
  ASSERT_TRUE(launched.program().prints("step    7/"));
  const pid_t first = launched.family().rank(0), second = launched.family().rank(1);
  kill(second, SIGSTOP);
  ASSERT_TRUE(launched.program().prints("was stopped by SIGSTOP"));
  for (const pid_t process : {first, launched.program().id(), launched.family().agent()}) kill(process, SIGINT);
  wait_for_a_signal_to(second);  // the agent forwards the signal to this rank last
  for (const int signal : {SIGINT, SIGCONT}) kill(second, signal);
  const Result result = launched.program().wait(30);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.out, HasSubstr(", saved"));
  EXPECT_TRUE(fs::exists(launched.run() + "/ckpt/latest"));
}

TEST(LauncherStop, SkipsSaveOnSecondInterrupt) {
  const Result result = stopped_by({SIGINT, SIGINT});
  EXPECT_THAT(result.out, Not(HasSubstr(", saved"))) << result.out;
}

TEST(LauncherStop, AllowsRankZeroToEndAfterGrace) {
  const TemporaryFolder folder;
  Launched launched(folder, {"--max-restarts", "0"}, kEndless + Words{"launch.grace=2s"});
  ASSERT_TRUE(launched.program().prints("step    3/"));
  const pid_t first = launched.family().rank(0), second = launched.family().rank(1);
  kill(first, SIGSTOP);
  ASSERT_TRUE(launched.program().prints("rank 0 on localhost was stopped by SIGSTOP"));
  kill(second, SIGRTMIN + 7);
  std::this_thread::sleep_for(4s);
  for (const int signal : {SIGRTMIN + 7, SIGCONT}) kill(first, signal);
  const Result result = launched.program().wait(30);
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(LauncherSaveRequest, SavesOnSigusr2AndContinues) {
  const TemporaryFolder folder;
  Launched launched(folder, {}, kEndless);
  ASSERT_TRUE(launched.program().prints("step    20/"));
  launched.program().signal(SIGUSR2);
  EXPECT_TRUE(launched.program().prints("on request"));
  launched.program().signal(SIGTERM);
  EXPECT_EQ(launched.program().wait(30).exit_code, 143);
}

TEST(LauncherSaveRequest, SparesStartingRanks) {
  const TemporaryFolder folder;
  Launched launched(folder, {"--max-restarts", "0"}, {});
  ASSERT_GT(launched.family().rank(1), 0);
  launched.program().signal(SIGUSR2);
  const Result result = launched.program().wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace gputrain::testing_support
