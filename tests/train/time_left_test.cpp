#include "gputrain/train/time_left.hpp"

#include <cmath>
#include <cstdint>
#include <random>

#include <gtest/gtest.h>

namespace gputrain::train {
namespace {

/// A run with given times; walks it step by step and looks at the estimate.
struct TimedRun {
  Plan plan;
  double step_seconds = 0.1, eval_seconds = 0, save_seconds = 0;
  double first_step_seconds = 3, noise = 0;
  Progress progress = {};
  TimeLeft left{plan};
  std::mt19937 random{7};

  double seconds() const { return progress.train_seconds + progress.eval_seconds + progress.save_seconds; }
  void take_step() {
    if (progress.step == 0) left.begin(progress);
    ++progress.step;
    const double factor = noise > 0 ? std::lognormal_distribution<double>(0, noise)(random) : 1;
    progress.train_seconds += progress.step == 1 ? first_step_seconds : step_seconds * factor;
    progress.usage.samples += 8;
    left.note_step(progress);
  }
  void interrupt() {
    if (plan.eval.at_step(progress.step) || progress.step == plan.total_steps) progress.eval_seconds += eval_seconds;
    if (plan.save.at_step(progress.step) || progress.step == plan.total_steps) progress.save_seconds += save_seconds;
  }
};

/// Returns the largest part of the rest by which an estimate is wrong, from a tenth of the run to nine tenths.
double worst_error(const TimedRun& given) {
  TimedRun whole{given.plan,         given.step_seconds,       given.eval_seconds,
                 given.save_seconds, given.first_step_seconds, given.noise};
  while (whole.progress.step < whole.plan.total_steps) {
    whole.take_step();
    whole.interrupt();
  }
  TimedRun run{given.plan,         given.step_seconds,       given.eval_seconds,
               given.save_seconds, given.first_step_seconds, given.noise};
  double worst = 0;
  while (run.progress.step < run.plan.total_steps) {
    run.take_step();
    const double rest = whole.seconds() - run.seconds();
    if (run.progress.step >= run.plan.total_steps / 10 && run.progress.step <= run.plan.total_steps * 9 / 10)
      worst = std::max(worst, std::abs(run.left.seconds(run.progress) - rest) / rest);
    run.interrupt();
  }
  return worst;
}

TEST(TimeLeft, IsRightForAnEvenRunFromATenthOn) {
  EXPECT_LT(worst_error({.plan = {.total_steps = 200}}), 1e-6);
  EXPECT_LT(worst_error({.plan = {.total_steps = 1000}, .noise = 0.3}), 0.15);
}

TEST(TimeLeft, CountsEvaluationsAndSavesThatAreStillToCome) {
  const TimedRun run{
      .plan = {.total_steps = 500, .eval = {.steps = 40}, .save = {.steps = 45}}, .eval_seconds = 6, .save_seconds = 2};
  EXPECT_LT(worst_error(run), 0.02);
}

TEST(TimeLeft, CountsTheEvaluationAtTheEnd) {
  TimedRun run{.plan = {.total_steps = 100, .eval = {.steps = 30}}, .eval_seconds = 5};
  for (int i = 0; i < 95; ++i) {
    run.take_step();
    run.interrupt();
  }
  EXPECT_NEAR(run.left.seconds(run.progress), 0.5 + 5, 1e-6);
}

TEST(TimeLeft, EndsWithTheTimeOfTheRun) {
  TimedRun run{.plan = {.total_steps = INT64_MAX, .max_seconds = 10}, .first_step_seconds = 0.1};
  for (int i = 0; i < 40; ++i) run.take_step();
  EXPECT_NEAR(run.left.seconds(run.progress), 6, 1e-6);
}

TEST(TimeLeft, TellsTheMeanRate) {
  TimedRun run{.plan = {.total_steps = 100}};
  EXPECT_EQ(run.left.samples_per_second(), 0);
  for (int i = 0; i < 10; ++i) run.take_step();
  EXPECT_NEAR(run.left.samples_per_second(), 80, 1e-6) << "the first step does not count";
}

TEST(TimeLeft, GoesOnAfterARollback) {
  TimedRun run{.plan = {.total_steps = 100}};
  for (int i = 0; i < 10; ++i) run.take_step();
  run.progress.eval_seconds += 50;  // of the attempt that a checkpoint tells of
  run.left.begin(run.progress);
  run.take_step();
  EXPECT_NEAR(run.left.seconds(run.progress), 8.9, 1e-6);
}

TEST(Cadence, CountsItsTimes) {
  const Cadence every{.steps = 40};
  for (int64_t after = 0; after < 130; ++after) {
    int64_t count = 0;
    for (int64_t until = after; until < 250; ++until) {
      if (until > after) count += every.at_step(until) ? 1 : 0;
      ASSERT_EQ(every.times_in(after, until), count) << after << " to " << until;
    }
  }
  EXPECT_EQ(Cadence{}.times_in(0, 100), 0);
  EXPECT_EQ((Cadence{.steps = 10, .also_steps = 50}.times_in(0, 100)), 10);
}

}  // namespace
}  // namespace gputrain::train
