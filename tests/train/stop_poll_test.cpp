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

}  // namespace
}  // namespace gputrain::train
