#include <csignal>
#include <cstdlib>

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

}  // namespace
}  // namespace gputrain::train
