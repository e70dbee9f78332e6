#include "gputrain/estimate/interruptions.hpp"

#include <algorithm>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "gputrain/train/save_pace.hpp"

namespace gputrain::app {
namespace {

/// Goes through a job piece by piece: each ends with a save, an interruption begins it anew after a restart, which may
/// be interrupted itself. Returns the mean time of a piece.
double simulated_piece(double interval, const Interruptions& interruptions) {
  constexpr int kPieces = 400'000;
  std::mt19937_64 random(7);
  std::exponential_distribution<double> life(1 / interruptions.between_seconds);
  const auto done_within = [&](double needed, double& spent) {
    const double seconds = life(random);
    spent += std::min(seconds, needed);
    return seconds >= needed;
  };
  double spent = 0;
  for (int piece = 0; piece < kPieces; ++piece) {
    while (!done_within(interval + interruptions.save_seconds, spent))
      while (!done_within(interruptions.restart_seconds, spent)) {
      }
  }
  return spent / kPieces;
}

TEST(Interruptions, AreNoneWithoutAnEndOfTheTimeBetween) {
  EXPECT_DOUBLE_EQ(expected_seconds(7200, 1800, {.save_seconds = 10, .restart_seconds = 300}), 7200 + 4 * 10);
  const InterruptedTime time = time_with({.save_seconds = 10, .restart_seconds = 300}, 36000);
  EXPECT_DOUBLE_EQ(time.save_interval, 3600) << "the longest that checkpoint.interval: auto chooses";
  EXPECT_DOUBLE_EQ(time.total, 36000 + 10 * 10);
  EXPECT_EQ(time.interruptions, 0);
}

TEST(Interruptions, CostWhatWasWorkedOutByHand) {
  const Interruptions hourly{.between_seconds = 3600, .save_seconds = 30, .restart_seconds = 300};
  // 3600 * e^(1/12) * (e^(2/15) - 1) = 3600 * 1.0869040 * 0.1426308
  EXPECT_NEAR(expected_seconds(450, 450, hourly), 558.0936, 1e-3);
  EXPECT_NEAR(expected_seconds(3600, 450, hourly), 8 * 558.0936, 1e-2);
  EXPECT_NEAR(train::young_save_interval(60, 86400), 3219.9379, 1e-3);  // sqrt(2 * 60 * 86400)
  // 3219.9379 * (1 + 0.0186339 / 3 + 0.0186339^2 / 9) - 60
  EXPECT_NEAR(train::daly_save_interval(60, 86400), 3180.0621, 1e-3);
  EXPECT_EQ(train::daly_save_interval(200, 100), 100) << "a save takes as long as machines last";
}

TEST(Interruptions, CostWhatASimulationSays) {
  for (const Interruptions& interruptions :
       {Interruptions{.between_seconds = 72000, .save_seconds = 10, .restart_seconds = 300},
        Interruptions{.between_seconds = 3600, .save_seconds = 30, .restart_seconds = 300},
        Interruptions{.between_seconds = 900, .save_seconds = 60, .restart_seconds = 600}}) {
    const double interval = time_with(interruptions, 1).save_interval;
    const double simulated = simulated_piece(interval, interruptions);
    EXPECT_NEAR(expected_seconds(interval, interval, interruptions), simulated, 0.01 * simulated)
        << interruptions.between_seconds;
  }
}

TEST(Interruptions, CostLeastWithTheChosenInterval) {
  const Interruptions spot{.between_seconds = 7200, .save_seconds = 20, .restart_seconds = 240};
  const InterruptedTime chosen = time_with(spot, 1e5);
  double least = std::numeric_limits<double>::infinity();
  for (double interval = 10; interval < 7200; interval += 1)
    least = std::min(least, expected_seconds(1e5, interval, spot));
  EXPECT_LT(chosen.total, 1.0005 * least);
  EXPECT_GT(expected_seconds(1e5, 4 * chosen.save_interval, spot), 1.03 * least);
  EXPECT_GT(expected_seconds(1e5, chosen.save_interval / 4, spot), 1.03 * least);
  EXPECT_DOUBLE_EQ(chosen.interruptions, chosen.total / 7200);
}

TEST(Interruptions, KeepAJobFromEndingWhereTheyComeTooOften) {
  const InterruptedTime time = time_with({.between_seconds = 1, .save_seconds = 10, .restart_seconds = 3000}, 1e5);
  EXPECT_FALSE(time.ends());
}

}  // namespace
}  // namespace gputrain::app
