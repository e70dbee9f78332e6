#include "gputrain/train/progress.hpp"

#include <cmath>
#include <tuple>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"

namespace gputrain::train {
namespace {

/// Returns all fields, for comparisons. Does not compile once there is another field: set that one below too.
auto fields_of(const Progress& progress) {
  const auto& [step, usage, unreadable_in_epoch, tokens, train_seconds, eval_seconds, save_seconds, attempts,
               nonfinite_steps, skipped_in_a_row, rollbacks, gained, gained_metric, evaluations_without_gain,
               evaluated_step, evaluates_anew, seconds_since_evaluation, ordered_rate, average_points, feedback,
               metrics, best] = progress;
  const auto& [factor, metric, feedback_best, bad, cooldown] = feedback;
  const auto& [value, at_step] = best.at("val/loss");
  return std::tuple(step, usage, unreadable_in_epoch, tokens, train_seconds, eval_seconds, save_seconds, attempts,
                    nonfinite_steps, skipped_in_a_row, rollbacks, gained, gained_metric, evaluations_without_gain,
                    evaluated_step, evaluates_anew, seconds_since_evaluation, ordered_rate, average_points, factor,
                    metric, feedback_best, bad, cooldown, metrics, value, at_step);
}

TEST(Progress, SurvivesJson) {
  const Progress progress{.step = 7,
                          .usage = {70, 0xF123456789ABCDEF, 5},
                          .unreadable_in_epoch = 3,
                          .tokens = 700,
                          .train_seconds = 1.0 / 3,
                          .eval_seconds = 0.7,
                          .save_seconds = 0.6,
                          .attempts = 2,
                          .nonfinite_steps = 6,
                          .skipped_in_a_row = 4,
                          .rollbacks = 8,
                          .gained = 0.2,
                          .gained_metric = "val/loss",
                          .evaluations_without_gain = 9,
                          .evaluated_step = 5,
                          .evaluates_anew = true,
                          .seconds_since_evaluation = 1.5,
                          .ordered_rate = OrderedRate{.lr = 0.3, .job_lr = 0.4},
                          .average_points = 11,
                          .lr_feedback = {.factor = 0.5, .metric = "val/top1", .best = 81, .bad = 12, .cooldown = 13},
                          .metrics = {{"val/loss", 0.1}},
                          .best = {{"val/loss", {0.1, 5}}}};
  const auto copy = Progress::from_json(nlohmann::json::parse(progress.to_json().dump()));
  EXPECT_TRUE(fields_of(copy) == fields_of(progress)) << copy.to_json() << progress.to_json();
}

TEST(Progress, SurvivesJsonWithNonFiniteMetrics) {
  Progress progress;
  for (const double value : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    progress.metrics["val/loss"] = value;
    EXPECT_FALSE(record_best(progress, "val/loss", value));
    const auto copy = Progress::from_json(nlohmann::json::parse(progress.to_json().dump()));
    EXPECT_TRUE(std::isnan(copy.metrics.at("val/loss")));
  }
  EXPECT_TRUE(record_best(progress, "val/loss", 2.0));
}

TEST(Progress, RefusesJsonWithoutAField) {
  auto json = Progress{}.to_json();
  json.erase("samples");
  EXPECT_THROW(Progress::from_json(json), Error);
  EXPECT_THROW(Progress::from_json(nlohmann::json::array()), Error);
}

TEST(Progress, KeepsSmallestLossAndHighestAccuracy) {
  Progress progress;
  EXPECT_TRUE(record_best(progress, "val/loss", 2.0));
  EXPECT_FALSE(record_best(progress, "val/loss", 2.5));
  EXPECT_TRUE(record_best(progress, "val/loss", 1.5));
  EXPECT_TRUE(record_best(progress, "val/top1", 50));
  EXPECT_TRUE(record_best(progress, "val/top1", 60));
  EXPECT_FALSE(record_best(progress, "val/top1", 55));
  EXPECT_EQ(progress.best["val/top1"].value, 60);
}

}  // namespace
}  // namespace gputrain::train
