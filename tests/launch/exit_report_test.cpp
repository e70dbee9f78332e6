#include "../../src/launch/launcher/exit_report.hpp"

#include <csignal>
#include <set>

#include <gtest/gtest.h>

namespace gputrain::launch {
namespace {

RankEnd ended(ProcessStatus::Kind kind, int number, bool was_told, bool tells_error = true) {
  RankEnd end;
  end.status = {kind, number};
  end.was_told = was_told;
  end.tells_error = tells_error;
  return end;
}

TEST(ExitCause, WeighsLostPeersLessThanOwnReasons) {
  const auto lost = cause_of(ended(ProcessStatus::Kind::exited, 138, false), "h"),
             own = cause_of(ended(ProcessStatus::Kind::exited, 5, false), "h"),
             told = cause_of(ended(ProcessStatus::Kind::exited, 5, true), "h"),
             killed = cause_of(ended(ProcessStatus::Kind::killed, SIGKILL, false), "h");
  ASSERT_TRUE(lost && own && told && killed);
  EXPECT_LT(lost->weight, told->weight);
  EXPECT_LT(told->weight, own->weight);
  EXPECT_EQ(own->weight, killed->weight);
}

TEST(ExitCause, ExcludesWhatTheLauncherAskedFor) {
  for (const int code : {0, 130, 138, 143})
    EXPECT_FALSE(cause_of(ended(ProcessStatus::Kind::exited, code, true), "h")) << code;
  RankEnd end = ended(ProcessStatus::Kind::killed, SIGKILL, true);
  EXPECT_TRUE(cause_of(end, "h"));  // killed by someone else while it saved
  end.killed_by_us = true;
  EXPECT_FALSE(cause_of(end, "h"));
}

TEST(ExitCause, ExcludesRanksThatAgreedToYield) {
  EXPECT_FALSE(cause_of(ended(ProcessStatus::Kind::exited, 138, false, false), "h"));
  EXPECT_TRUE(cause_of(ended(ProcessStatus::Kind::exited, 1, false, false), "h"));
}

TEST(ExitCause, AllowsARestartUnlessTheCodeSaysThatItIsInVain) {
  const std::set<int> in_vain{2, 3, 4, 5, 6, 93, 127, 130, 143};
  for (int code = 1; code < 256; ++code) {
    const Cause cause{.host = "h", .story = {}, .end = ended(ProcessStatus::Kind::exited, code, false)};
    EXPECT_EQ(cause.allows_restart(), !in_vain.contains(code)) << code;
  }
  const Cause killed{.host = "h", .story = {}, .end = ended(ProcessStatus::Kind::killed, SIGKILL, false)};
  EXPECT_TRUE(killed.allows_restart());
}

TEST(ExitCause, CountsAsToldWhenLastLinesNameAnError) {
  Cause cause{.host = "h", .story = {}, .end = ended(ProcessStatus::Kind::exited, 3, false)};
  EXPECT_FALSE(cause.is_reported());
  cause.end.tail = {"model   gpt 814k params"};
  EXPECT_FALSE(cause.is_reported());
  for (const char* line : {"error: no such file", "1 mistake in job.yaml", "internal error: x"}) {
    cause.end.tail = {line, "  try: again"};
    EXPECT_TRUE(cause.is_reported()) << line;
  }
}

TEST(ExitReport, RepeatsLastLinesUnlessJustShown) {
  ExitReport report{.cause = {.host = "h", .story = {}, .end = ended(ProcessStatus::Kind::exited, 3, false)}};
  report.cause.end.tail = {"error: no such file"};
  EXPECT_NE(report.page().find("| error: no such file"), std::string::npos);
  EXPECT_EQ(report.page().find("all of them in"), std::string::npos);  // no log was written
  report.cause.end.log = "logs/rank_0000.log";
  EXPECT_NE(report.page().find("all of them in logs/rank_0000.log"), std::string::npos);
  report.is_heard = true;
  EXPECT_EQ(report.page().find("no such file"), std::string::npos);
}

}  // namespace
}  // namespace gputrain::launch
