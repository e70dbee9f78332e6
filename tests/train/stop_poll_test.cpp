#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "gputrain/train/preemption.hpp"

namespace gputrain::train {
namespace {

TEST(StopPoll, KeepsAStopWhoseReasonIsWithdrawn) {
  comm::ProcessGroups alone;
  Stop reason = Stop::notice;
  StopPoll poll(alone, [&] { return std::exchange(reason, Stop::none); });
  EXPECT_EQ(poll.next(), Stop::none);  // nothing is agreed yet
  EXPECT_EQ(poll.next(), Stop::notice);
  EXPECT_EQ(poll.finish(), Stop::notice);
}

/// Waits until the handler of a signal that was already sent has run: sends SIGUSR2, which is handled after it and is
/// observable.
void wait_for_handler_of(int signal) {
  static SaveRequests later({});
  sigset_t pending;
  do sigpending(&pending);
  while (sigismember(&pending, signal) == 1);
  ::kill(::getpid(), SIGUSR2);
  while (!later.pending()) sched_yield();
  later.served();
}

void tell(int signal) {
  ::kill(::getpid(), signal);
  wait_for_handler_of(signal);
}

TEST(Signals, LeaveExitCodeOfAnErrorAlone) {
  const auto end_by_error = [](bool is_noted, int signal) {
    watch_signals();
    if (is_noted) note_failure();
    tell(signal);
    std::_Exit(2);
  };
  for (const int signal : {SIGTERM, SIGUSR1, SIGHUP}) {
    EXPECT_EXIT(end_by_error(true, signal), ::testing::ExitedWithCode(2), "^$");
  }
  EXPECT_EXIT(end_by_error(false, SIGTERM), ::testing::ExitedWithCode(143), "stopped at once");
  EXPECT_EXIT(end_by_error(true, SIGINT), ::testing::ExitedWithCode(130), "stopped at once");
}

/// Exit code of a process that its parent and another process interrupt so often; 2: it ended by itself.
int end_of_one_interrupted(int by_parent, int by_others) {
  const pid_t child = ::fork();
  if (child == 0) {
    watch_signals();
    note_signals();
    for (int i = 0; i < by_others; ++i) tell(SIGINT);
    for (int i = 0; i < by_parent; ++i) {
      std::raise(SIGSTOP);  // until the parent continues it
      wait_for_handler_of(SIGINT);
    }
    std::_Exit(2);
  }
  int status = 0;
  while (::waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status)) {
    for (const int signal : {SIGINT, SIGCONT}) ::kill(child, signal);
  }
  return WEXITSTATUS(status);
}

/// Number of these signals that the calling thread does not block.
int interruptions() {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  int count = 0;
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) count += sigismember(&blocked, signal) == 1 ? 0 : 1;
  return count;
}

/// A handler would overwrite the memory that oneDNN uses as stack during a matrix product.
TEST(Signals, InterruptNoComputingThread) {
  const auto look = [] {
    watch_signals();
    note_signals();
    int of_another = 0;
    std::thread([&] { of_another = interruptions(); }).join();
    tell(SIGTERM);
    std::fprintf(stderr, "%d and %d, %s", interruptions(), of_another,
                 noted_stop() == Stop::terminated ? "noted" : "not noted");
    std::_Exit(0);
  };
  EXPECT_EXIT(look(), ::testing::ExitedWithCode(0), "^0 and 0, noted$");
}

TEST(Signals, InsistAfterASecondInterrupt) {
  EXPECT_EQ(end_of_one_interrupted(1, 1), 2);
  EXPECT_EQ(end_of_one_interrupted(2, 0), 130);
  EXPECT_EQ(end_of_one_interrupted(0, 2), 130);
  EXPECT_EQ(end_of_one_interrupted(1, 2), 130);
  EXPECT_EQ(end_of_one_interrupted(2, 1), 130);
}

}  // namespace
}  // namespace gputrain::train
