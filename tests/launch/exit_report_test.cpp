#include "exit_report.hpp"

#include <csignal>

#include <gtest/gtest.h>

namespace gputrain::launch {
namespace {

RankEnd ended(Fate::Kind kind, int number, bool was_told) {
  RankEnd end;
  end.fate = {kind, number};
  end.was_told = was_told;
  return end;
}

TEST(Causes, OfARankThatLostItsPeersWeighLessThanAReasonOfItsOwn) {
  const auto lost = cause_of(ended(Fate::Kind::exited, 138, false), "h"),
             own = cause_of(ended(Fate::Kind::exited, 5, false), "h"),
             told = cause_of(ended(Fate::Kind::exited, 5, true), "h"),
             killed = cause_of(ended(Fate::Kind::killed, SIGKILL, false), "h");
  ASSERT_TRUE(lost && own && told && killed);
  EXPECT_LT(lost->weight, told->weight);
  EXPECT_LT(told->weight, own->weight);
  EXPECT_EQ(own->weight, killed->weight);
}

TEST(Causes, AreNotWhatTheLauncherItselfAskedFor) {
  for (const int code : {0, 130, 138, 143}) EXPECT_FALSE(cause_of(ended(Fate::Kind::exited, code, true), "h")) << code;
  for (const int signal : {SIGTERM, SIGKILL}) EXPECT_FALSE(cause_of(ended(Fate::Kind::killed, signal, true), "h"));
  EXPECT_TRUE(cause_of(ended(Fate::Kind::killed, SIGSEGV, true), "h"));
}

}  // namespace
}  // namespace gputrain::launch
