// Which settings the trials of a sweep have, and which of them go on.
#include "gputrain/sweep/trials.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gputrain::app {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

SweepSpec spec_of(const std::string& method, std::vector<SweepParameter> parameters, int64_t trials = 0) {
  SweepSpec spec;
  spec.method = method;
  spec.parameters = std::move(parameters);
  if (trials > 0) spec.trials = trials;
  return spec;
}

TEST(SweepTrials, GridHasAllCombinationsAndTheLastParameterVariesFastest) {
  const auto trials =
      trial_settings(spec_of("grid", {{.key = "a", .values = {"1", "2"}}, {.key = "b", .values = {"x", "y", "z"}}}), 1);
  ASSERT_EQ(trials.size(), 6U);
  EXPECT_THAT(trials[0], ElementsAre(Pair("a", "1"), Pair("b", "x")));
  EXPECT_THAT(trials[1], ElementsAre(Pair("a", "1"), Pair("b", "y")));
  EXPECT_THAT(trials[5], ElementsAre(Pair("a", "2"), Pair("b", "z")));
}

TEST(SweepTrials, HaveNullAsTheJobWritesIt) {
  const auto trials = trial_settings(spec_of("grid", {{.key = "a", .values = {std::nullopt, "x"}}}), 1);
  ASSERT_EQ(trials.size(), 2U);
  EXPECT_THAT(trials[0], ElementsAre(Pair("a", "null")));
}

TEST(SweepTrials, RandomOnesFillTheirRanges) {
  const std::vector<SweepParameter> parameters{{.key = "lr", .min = 1e-4, .max = 1, .scale = "log"},
                                               {.key = "drop", .min = 0.2, .max = 0.6},
                                               {.key = "size", .values = {"8", "16"}}};
  const auto trials = trial_settings(spec_of("random", parameters, 4000), 7);
  double small = 0, drop = 0, size = 0;
  for (const auto& settings : trials) {
    const double lr = std::stod(settings[0].second), share = std::stod(settings[1].second);
    EXPECT_TRUE(lr >= 1e-4 && lr <= 1 && share >= 0.2 && share <= 0.6) << lr << " " << share;
    small += lr < 1e-2;
    drop += share;
    size += settings[2].second == "8";
  }
  EXPECT_NEAR(small / 4000, 0.5, 0.03);  // half of the powers of ten
  EXPECT_NEAR(drop / 4000, 0.4, 0.01);
  EXPECT_NEAR(size / 4000, 0.5, 0.03);
}

TEST(SweepTrials, DependOnTheSeedAndNotOnHowManyThereAre) {
  const std::vector<SweepParameter> parameters{{.key = "lr", .min = 0, .max = 1}};
  const auto few = trial_settings(spec_of("random", parameters, 3), 7);
  const auto many = trial_settings(spec_of("asha", parameters, 9), 7);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  EXPECT_NE(few, trial_settings(spec_of("random", parameters, 3), 8));
  EXPECT_NE(few[0], few[1]);
}

/// Losses that fall by a tenth with each evaluation.
std::vector<double> losses_from(double first, int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(first - 0.1 * static_cast<double>(i));
  return values;
}

TEST(SweepRungs, EndTrialsThatAreNotAmongTheBestThird) {
  SweepSpec spec = spec_of("asha", {}, 9);
  spec.first_rung = 2;
  Rungs rungs(spec, /*smaller_is_better=*/true);
  EXPECT_FALSE(rungs.ends_after(0, losses_from(5, 1)));   // no rung yet
  EXPECT_FALSE(rungs.ends_after(0, losses_from(5, 18)));  // the first to reach the rungs at 2, 6 and 18
  EXPECT_EQ(rungs.reached().size(), 3U);
  EXPECT_EQ(rungs.ends_after(1, losses_from(6, 2)), 2);  // second of two
  EXPECT_FALSE(rungs.ends_after(2, losses_from(4, 2)));  // best of three
  EXPECT_EQ(rungs.ends_after(3, losses_from(4.5, 2)), 2);
  EXPECT_EQ(rungs.ends_after(4, losses_from(4.2, 2)), 2);  // second of five: a third of five is one
  EXPECT_FALSE(rungs.ends_after(5, losses_from(4.1, 2)));  // second of six: two go on
  EXPECT_EQ(rungs.ends_after(5, losses_from(6, 6)), 6);    // rung 2 is not judged again; at 6 the first trial is better
  EXPECT_FALSE(rungs.ends_after(2, losses_from(4, 6)));
}

TEST(SweepRungs, TakeWhatIsNotFiniteForTheWorst) {
  Rungs rungs(spec_of("asha", {}, 3), /*smaller_is_better=*/false);
  EXPECT_FALSE(rungs.ends_after(0, {std::nan("")}));
  EXPECT_FALSE(rungs.ends_after(1, {-100}));
  EXPECT_EQ(rungs.ends_after(2, {std::numeric_limits<double>::infinity()}), 1);
  EXPECT_EQ(rungs.best({std::nan(""), 3, 5, 4}), 5);
  EXPECT_FALSE(rungs.best({std::nan("")}));
}

TEST(SweepRungs, EndNoTrialOfOtherMethods) {
  Rungs rungs(spec_of("random", {}, 3), true);
  EXPECT_FALSE(rungs.ends_after(0, losses_from(1, 30)));
  EXPECT_FALSE(rungs.ends_after(1, losses_from(9, 30)));
}

}  // namespace
}  // namespace gputrain::app
