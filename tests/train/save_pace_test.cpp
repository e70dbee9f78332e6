#include "gputrain/train/save_pace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

namespace gputrain::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Simulates a run that saves every `interval` seconds and dies at random times. Returns the fraction of time lost to
/// saves and repeated work.
double simulated_loss(double interval, double cost, double between) {
  std::mt19937_64 random(1);
  std::exponential_distribution<double> life(1 / between);
  double kept = 0, spent = 0;
  for (int death = 0; death < 200'000; ++death) {
    const double seconds = life(random);
    kept += std::floor(seconds / (interval + cost)) * interval;
    spent += seconds;
  }
  return 1 - kept / spent;
}

struct Case {
  double cost, between;

  std::string name() const {
    return std::to_string(std::lround(1000 * cost)) + "msAndALossIn" + std::to_string(std::lround(between)) + "s";
  }
  friend void PrintTo(const Case& it, std::ostream* to) { *to << it.name(); }
};
class BestSaveInterval : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Runs, BestSaveInterval,
                         ::testing::Values(Case{0.05, 3600}, Case{1, 86400}, Case{0.2, 600}, Case{20, 86400},
                                           Case{3, 7200}),
                         [](const auto& entry) { return entry.param.name(); });

TEST_P(BestSaveInterval, LosesNearlyLeastTime) {
  const auto [cost, between] = GetParam();
  const double chosen = best_save_interval(cost, between);
  const double loss = simulated_loss(chosen, cost, between);
  for (const double factor : {0.3, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0, 3.0}) {
    EXPECT_LT(loss, simulated_loss(factor * chosen, cost, between) * 1.01) << chosen << " times " << factor;
  }
  EXPECT_LT(loss * 1.15, simulated_loss(0.4 * chosen, cost, between));  // the minimum is not flat
  EXPECT_LT(loss * 1.15, simulated_loss(2.5 * chosen, cost, between));
}

TEST(SaveInterval, StaysBetweenTenSecondsAndAnHour) {
  EXPECT_EQ(best_save_interval(0, 3600), 10);
  EXPECT_EQ(best_save_interval(100, 1e9), 3600);
}

TEST(SaveInterval, KeepsSavingUnderFivePercentIfItCan) {
  const double interval = best_save_interval(10, 1000);
  EXPECT_DOUBLE_EQ(10 / (interval + 10), 0.05);
  EXPECT_DOUBLE_EQ(best_save_interval(30, 400), 200);  // 5 % would mean 570 s, and no save would complete
}

TEST(SecondsBetweenLosses, ArePresumedThenMeasured) {
  EXPECT_DOUBLE_EQ(seconds_between_interruptions({}, false), 86400);
  EXPECT_DOUBLE_EQ(seconds_between_interruptions({}, true), 4 * 86400);
  EXPECT_NEAR(seconds_between_interruptions({.interruptions = 100, .seconds = 100 * 600}, false), 600, 0.4 * 600);
  EXPECT_NEAR(seconds_between_interruptions({.interruptions = 1000, .seconds = 1000.0 * 600}, false), 600, 0.05 * 600);
  const double early = seconds_between_interruptions({.interruptions = 1, .seconds = 60}, false);
  EXPECT_GT(early, 3600);  // one early death does not mean one every minute
  EXPECT_LT(early, 86400 / 2);
}

TEST(SavePace, SavesEarlyThenByMeasuredCost) {
  SavePace pace;
  EXPECT_EQ(pace.interval_seconds(), 10);
  EXPECT_EQ(pace.take_news(), "");
  pace.note_written(5, 1);  // the first save allocates
  EXPECT_EQ(pace.interval_seconds(), 100);
  pace.note_written(0.1, 1);
  EXPECT_NEAR(pace.interval_seconds(), std::sqrt(2 * 0.1 * 86400), 1);
  EXPECT_THAT(pace.take_news(),
              AllOf(HasSubstr("every 2m11s"), HasSubstr("costs 100ms"), HasSubstr("1d0h"), HasSubstr("presumed")));
  EXPECT_EQ(pace.take_news(), "");
  pace.note_written(0.1, 1);
  EXPECT_EQ(pace.take_news(), "");
  pace.note_written(10, 1);
  EXPECT_NE(pace.take_news(), "");
}

TEST(SavePace, CountsSlowdownOfTraining) {
  SavePace slowed, unslowed;
  for (int save = 0; save < 3; ++save) {
    for (SavePace* pace : {&slowed, &unslowed}) {
      for (int step = 0; step < 20; ++step) pace->note_step(0.1);
      pace->note_begun();
      for (int step = 0; step < 20; ++step) pace->note_step(pace == &slowed ? 0.2 : 0.1);
      pace->note_written(0.5, 4);
    }
  }
  EXPECT_THAT(unslowed.text(), HasSubstr("costs 500ms"));
  EXPECT_THAT(slowed.text(), HasSubstr("costs 2.5s"));  // half the speed for four seconds, plus the stall
  EXPECT_GT(slowed.interval_seconds(), unslowed.interval_seconds());
}

TEST(SavePace, FollowsLossesAndWatchedNotices) {
  const auto pace_after = [](InterruptionStats record, double write_seconds) {
    SavePace pace(record);
    for (int save = 0; save < 2; ++save) pace.note_written(0.2, write_seconds);
    return pace;
  };
  SavePace fresh = pace_after({}, 2);
  EXPECT_LT(pace_after({.interruptions = 3, .seconds = 3600}, 2).interval_seconds(), fresh.interval_seconds() / 2);
  EXPECT_THAT(pace_after({.interruptions = 3, .seconds = 3600}, 2).text(), HasSubstr("3 losses in 1h0m"));
  const double without = fresh.interval_seconds();
  fresh.set_notices_watched(true);
  EXPECT_NEAR(fresh.interval_seconds(), 2 * without, 1);
  SavePace slow = pace_after({}, 100);  // the machine is gone before such a save completes
  const double slowly = slow.interval_seconds();
  slow.set_notices_watched(true);
  EXPECT_EQ(slow.interval_seconds(), slowly);
}

TEST(SavePace, CountsTimeWithoutALoss) {
  SavePace pace({.interruptions = 1, .seconds = 3600});
  pace.note_step(3600);
  EXPECT_THAT(pace.text(), HasSubstr("1 loss in 2h0m"));
}

TEST(SavePace, NeverBeginsBeforeLastSaveIsWritten) {
  SavePace pace;
  for (int save = 0; save < 2; ++save) pace.note_written(0, 90);
  EXPECT_EQ(pace.interval_seconds(), 90);
}

}  // namespace
}  // namespace gputrain::train
