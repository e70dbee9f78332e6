// Which learning rate a range test suggests, on curves whose answer is known.
#include "gputrain/inspect/lr_range_test.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/random.hpp"

namespace gputrain::app {
namespace {

/// Points of a curve over log10 of the rate, with noise.
std::vector<LrPoint> points_of(const std::function<double(double)>& curve, double noise = 0.02, int64_t steps = 120,
                               uint64_t seed = 7) {
  const LrRange range{.min = 1e-6, .max = 1, .steps = steps};
  RandomStream random(seed, 0);
  std::vector<LrPoint> points;
  for (int64_t step = 0; step < range.steps; ++step) {
    const double lr = range.at(step);
    points.push_back({.lr = lr, .loss = curve(std::log10(lr)) + noise * (2 * random.uniform() - 1)});
  }
  return points;
}

/// Falls from 3 to 1, fastest at `at`; then rises without end.
double valley(double log_lr, double at) {
  return 3 - 2 / (1 + std::exp(-4 * (log_lr - at))) + std::exp(8 * (log_lr - at - 2));
}

TEST(LrRangeTest, RatesAreTheSameFactorApart) {
  const LrRange range{.min = 1e-4, .max = 1e-1, .steps = 4};
  for (int64_t step = 0; step < 4; ++step) EXPECT_NEAR(range.at(step), std::pow(10, step - 4), 1e-12);
}

TEST(LrRangeTest, SuggestsWhereTheLossFallsFastest) {
  for (const double at : {-4.0, -3.0, -2.0}) {
    const auto points = points_of([&](double log_lr) { return valley(log_lr, at); });
    const LrSuggestion found = suggest_lr(points);
    EXPECT_TRUE(found.falls);
    EXPECT_NEAR(std::log10(points[found.fastest].lr), at, 0.3);
    EXPECT_NEAR(std::log10(points[found.lowest].lr), at + 1.2, 0.4);
    EXPECT_GE(found.suggested, found.fastest);
    EXPECT_GE(points[found.suggested].lr, points[found.lowest].lr / 10);
  }
}

TEST(LrRangeTest, FirstWeightsThatAreBadDoNotDecide) {
  const auto points =
      points_of([](double log_lr) { return 2 / (1 + std::exp(8 * (log_lr + 5))) + valley(log_lr, -2) / 3; });
  const LrSuggestion found = suggest_lr(points);
  EXPECT_NEAR(std::log10(points[found.fastest].lr), -5, 0.3);
  EXPECT_NEAR(std::log10(points[found.suggested].lr / points[found.lowest].lr), -1, 0.06);
}

TEST(LrRangeTest, NoiseAloneIsNoFall) {
  for (const int64_t steps : {20, 50, 100, 400}) {
    int falls = 0;
    for (uint64_t seed = 0; seed < 100; ++seed)
      falls += suggest_lr(points_of([](double) { return 2.0; }, 0.5, steps, seed)).falls ? 1 : 0;
    EXPECT_LE(falls, 12) << steps;
  }
}

TEST(LrRangeTest, AnEndThatDivergesDoesNotMoveTheLowest) {
  auto points = points_of([](double log_lr) { return valley(std::min(log_lr, -2.0), -3); });
  points.back().loss = 1e30;
  EXPECT_GT(points.back().lr / points[suggest_lr(points).lowest].lr, 2);
}

TEST(LrRangeTest, DivergenceIsFourTimesTheLowestLoss) {
  Divergence divergence;
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(divergence.has_come(2.0));
  int steps = 0;
  while (!divergence.has_come(20.0)) ++steps;
  EXPECT_EQ(steps, 3);  // 2 + 18 * (1 - 0.9^n) passes 8 at n = 4
  EXPECT_TRUE(Divergence().has_come(std::numeric_limits<double>::quiet_NaN()));
}

TEST(LrRangeTest, TheTableMarksItsPoints) {
  const auto points = points_of([](double log_lr) { return valley(log_lr, -3); });
  const std::string table = lr_table(points, suggest_lr(points), 80);
  for (const char* mark : {"falls fastest", "suggested", "lowest"}) EXPECT_THAT(table, ::testing::HasSubstr(mark));
  size_t widest = 0;
  for (size_t begin = 0; begin < table.size();) {
    const size_t end = table.find('\n', begin);
    widest = std::max(widest, end - begin);
    begin = end + 1;
  }
  EXPECT_LE(widest, 80U);
}

}  // namespace
}  // namespace gputrain::app
