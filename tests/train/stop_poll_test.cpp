#include <csignal>
#include <cstdlib>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "gputrain/train/preemption.hpp"

namespace gputrain::train {
namespace {

TEST(StopPoll, KeepsToAStopWhoseReasonIsTakenBackMeanwhile) {
  comm::ProcessGroups alone;
  Stop reason = Stop::notice;
  StopPoll poll(alone, [&] { return std::exchange(reason, Stop::none); });
  EXPECT_EQ(poll.next(), Stop::none);  // nothing is agreed yet
  EXPECT_EQ(poll.next(), Stop::notice);
  EXPECT_EQ(poll.finish(), Stop::notice);
}

TEST(Signals, ThatAskToStopChangeNothingAboutAnEndByAnError) {
  const auto end_by_error = [](bool is_noted, int signal) {
    watch_signals();
    if (is_noted) note_failure();
    std::raise(signal);
    std::_Exit(2);
  };
  for (const int signal : {SIGTERM, SIGUSR1, SIGHUP}) {
    EXPECT_EXIT(end_by_error(true, signal), ::testing::ExitedWithCode(2), "^$");
  }
  EXPECT_EXIT(end_by_error(false, SIGTERM), ::testing::ExitedWithCode(143), "stopped at once");
  EXPECT_EXIT(end_by_error(true, SIGINT), ::testing::ExitedWithCode(130), "stopped at once");
}

/// With what a process ends that its parent and somebody else interrupt so often; 2: by itself.
int end_of_one_interrupted(int by_parent, int by_others) {
  const pid_t child = ::fork();
  if (child == 0) {
    watch_signals();
    note_signals();
    for (int i = 0; i < by_others; ++i) std::raise(SIGINT);
    for (int i = 0; i < by_parent; ++i) std::raise(SIGSTOP);  // and waits for the parent's word
    std::_Exit(2);
  }
  int status = 0;
  while (::waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status)) {
    for (const int signal : {SIGINT, SIGCONT}) ::kill(child, signal);
  }
  return WEXITSTATUS(status);
}

TEST(Signals, InsistWhereTheSameOneInterruptsTwice) {
  EXPECT_EQ(end_of_one_interrupted(1, 1), 2);
  EXPECT_EQ(end_of_one_interrupted(2, 0), 130);
  EXPECT_EQ(end_of_one_interrupted(0, 2), 130);
  EXPECT_EQ(end_of_one_interrupted(1, 2), 130);
  EXPECT_EQ(end_of_one_interrupted(2, 1), 130);
}

}  // namespace
}  // namespace gputrain::train
