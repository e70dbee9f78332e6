#include "gputrain/train/plan.hpp"

#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/config/load.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::train {
namespace {

using config::Length;

const PlanFacts kImages{.dataset_size = 1000, .tokens_per_sample = 0, .world_size = 1, .drop_last = false};
const PlanFacts kText{.dataset_size = 1000, .tokens_per_sample = 64, .world_size = 2, .drop_last = false};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "no error";
}

Plan plan_of(const TrainSpec& train, const PlanFacts& facts) {
  return make_plan(train, EvalSpec{}, CheckpointSpec{}, monitor::LogSpec{}, facts);
}

TEST(BatchPlan, DerivesTheThirdOfAnyTwo) {
  TrainSpec spec;
  spec.global_batch_size = 64;
  spec.micro_batch_size.emplace().value = 8;
  EXPECT_EQ(plan_batch(spec, kText).accumulation, 4);

  spec.micro_batch_size.reset();
  spec.gradient_accumulation_steps.value = 4;
  EXPECT_EQ(plan_batch(spec, kText).micro_batch, 8);

  spec.global_batch_size.reset();
  spec.micro_batch_size.emplace().value = 8;
  EXPECT_EQ(plan_batch(spec, kText).global_batch, 64);
}

TEST(BatchPlan, KeepsGlobalBatchOfResumedRunUnlessNamed) {
  TrainSpec spec;
  spec.micro_batch_size.emplace().value = 8;
  spec.gradient_accumulation_steps.value = 4;
  PlanFacts facts = kText;
  facts.kept_global_batch = 48;
  const auto kept = plan_batch(spec, facts);
  EXPECT_EQ(kept.global_batch, 48);
  EXPECT_EQ(kept.micro_batch, 8);
  EXPECT_EQ(kept.accumulation, 3);
  EXPECT_EQ(kept.aliases, 64);

  spec.global_batch_size = 64;
  EXPECT_EQ(plan_batch(spec, facts).global_batch, 64);
}

TEST(BatchPlan, TakesWholeShareForGlobalBatchAlone) {
  TrainSpec spec;
  spec.global_batch_size = 64;
  const auto batch = plan_batch(spec, kText);
  EXPECT_EQ(batch.micro_batch, 32);
  EXPECT_EQ(batch.accumulation, 1);
}

TEST(BatchPlan, CoversUnevenShareWithSmallerMicroBatches) {
  TrainSpec spec;
  spec.global_batch_size = 7;
  spec.micro_batch_size.emplace().value = 3;
  const auto batch = plan_batch(spec, kText);  // equal shares: 3 and 4 samples
  EXPECT_EQ(batch.micro_batch, 3);
  EXPECT_EQ(batch.accumulation, 2);
}

TEST(BatchPlan, CutsMicroBatchToTheShare) {
  TrainSpec spec;
  spec.global_batch_size = 20;
  spec.micro_batch_size.emplace().value = 32;
  const auto batch = plan_batch(spec, kText);
  EXPECT_EQ(batch.micro_batch, 10);
  EXPECT_EQ(batch.accumulation, 1);
}

TEST(BatchPlan, OffersMicroBatchesThatDivideAShare) {
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(micro_batches_to_try(1), Sizes{1});
  EXPECT_EQ(micro_batches_to_try(64), (Sizes{1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(micro_batches_to_try(30), (Sizes{1, 2, 3, 6, 15, 30}));
  EXPECT_EQ(micro_batches_to_try(97), (Sizes{1, 2, 4, 7, 13, 25, 49, 97}));
  TrainSpec spec;
  spec.global_batch_size = 64;
  spec.micro_batch_size.emplace();  // auto: until a size is found, the plan uses the whole share
  EXPECT_EQ(plan_batch(spec, kText).micro_batch, 32);
}

TEST(BatchPlan, RefusesContradictionsAndMissingSizes) {
  TrainSpec spec;
  EXPECT_THAT(message_of([&] { plan_batch(spec, kImages); }), testing::HasSubstr("train.global_batch_size"));
  spec.global_batch_size = 65;
  spec.micro_batch_size.emplace().value = 8;
  spec.gradient_accumulation_steps.value = 4;
  EXPECT_THAT(message_of([&] { plan_batch(spec, kText); }), testing::HasSubstr("65 is not micro_batch_size 8 x"));
  TrainSpec tiny;
  tiny.global_batch_size = 1;
  EXPECT_THAT(message_of([&] { plan_batch(tiny, kText); }), testing::HasSubstr("shared by 2 ranks"));
}

TEST(TrainSpec, RefusesBatchesThatNoRanksFit) {
  const auto refusal = [](const std::string& sizes) {
    return message_of([&] {
      config::load(config::schema_of<TrainSpec>(), {.file = "job.yaml", .text = "{max_steps: 1, " + sizes + "}"});
    });
  };
  const std::string passes = ", gradient_accumulation_steps: 4";
  EXPECT_THAT(refusal("global_batch_size: 48, micro_batch_size: 5" + passes),
              testing::HasSubstr("48 is not micro_batch_size 5 x gradient_accumulation_steps 4 x any number of ranks"));
  EXPECT_THAT(refusal("global_batch_size: 50, micro_batch_size: 4" + passes), testing::HasSubstr("50 is not"));
  EXPECT_THAT(refusal("global_batch_size: 2, micro_batch_size: 1" + passes), testing::HasSubstr("2 is not"));
  EXPECT_EQ(refusal("global_batch_size: 48, micro_batch_size: 4" + passes), "no error");
  EXPECT_THAT(refusal("global_batch_size: 48, micro_batch_size: [8, 4]" + passes), testing::HasSubstr("a list"));
  EXPECT_THAT(refusal("global_batch_size: 3" + passes),
              testing::HasSubstr("gradient_accumulation_steps: 4 is more than the 3 samples of global_batch_size"));
  EXPECT_EQ(refusal("global_batch_size: 4" + passes), "no error");
  EXPECT_EQ(refusal("global_batch_size: 48, micro_batch_size: 5"), "no error");
}

TEST(BatchPlan, RefusesMorePassesThanSamples) {
  TrainSpec spec;
  spec.global_batch_size = 4;
  spec.gradient_accumulation_steps.value = 8;
  EXPECT_THAT(message_of([&] { plan_batch(spec, kImages); }),
              testing::HasSubstr("train.gradient_accumulation_steps 8 is more than the 4 samples of "
                                 "train.global_batch_size 4\n"));
  spec.gradient_accumulation_steps.value = 3;
  EXPECT_EQ(plan_batch(spec, kText).accumulation, 2);  // the number of ranks may have grown
  spec.global_batch_size = 5;                          // equal shares: 3 and 2 samples
  EXPECT_EQ(plan_batch(spec, kText).micro_batch, 1);
  spec.global_batch_size.reset();
  spec.global_batch_tokens = 256;
  spec.gradient_accumulation_steps.value = 300;
  EXPECT_THAT(message_of([&] { plan_batch(spec, kText); }), testing::HasSubstr("train.global_batch_tokens 256"));
}

TEST(BatchPlan, ReadsTokensAsSequences) {
  TrainSpec spec;
  spec.global_batch_tokens = 640;
  EXPECT_EQ(plan_batch(spec, kText).global_batch, 10);
  spec.global_batch_tokens = 650;
  EXPECT_THAT(message_of([&] { plan_batch(spec, kText); }), testing::HasSubstr("train.global_batch_tokens: 640"));
  EXPECT_THAT(message_of([&] { plan_batch(spec, kImages); }), testing::HasSubstr("no tokens"));
}

TEST(Plan, PredictsEndByTheFirstLimit) {
  Plan plan{.total_steps = 100, .max_seconds = 60};
  EXPECT_EQ(plan.seconds_left(90, 20, 2), 20);
  EXPECT_EQ(plan.seconds_left(10, 20, 2), 40);
  EXPECT_EQ(plan.seconds_left(10, 61, 2), 0);
  plan.total_steps = INT64_MAX;
  EXPECT_EQ(plan.seconds_left(10, 20, 2), 40);
  plan = {.total_steps = 100};
  EXPECT_EQ(plan.seconds_left(10, 20, 2), 180);
}

TEST(Plan, EndsAtTheFirstLimit) {
  TrainSpec spec;
  spec.global_batch_size = 100;
  spec.max_epochs = 2.5;
  EXPECT_EQ(plan_of(spec, kImages).total_steps, 25);
  spec.max_steps = 7;
  EXPECT_EQ(plan_of(spec, kImages).total_steps, 7);
  spec.max_tokens = 6400 * 3 + 1;
  EXPECT_EQ(plan_of(spec, kText).total_steps, 4);
}

TEST(Plan, CountsTokensOfShortSteps) {
  TrainSpec spec;
  spec.global_batch_size = 600;  // two steps an epoch: 600 and 400 samples
  spec.max_tokens = 64000 * 4;
  EXPECT_EQ(plan_of(spec, kText).total_steps, 8);
  EXPECT_EQ(plan_of(spec, kText).steps_of({64000 * 3, Length::Unit::tokens}, "k"), 6);
  spec.max_tokens = 64000 + 64 * 601;
  EXPECT_EQ(plan_of(spec, kText).total_steps, 4);
  PlanFacts dropping = kText;
  dropping.drop_last = true;  // one step an epoch
  spec.max_tokens = 64 * 1200;
  EXPECT_EQ(plan_of(spec, dropping).total_steps, 2);
}

TEST(Plan, RefusesToTrainForever) {
  TrainSpec spec;
  spec.global_batch_size = 100;
  EXPECT_THAT(message_of([&] { plan_of(spec, kImages); }), testing::HasSubstr("no limit of training is set"));
  spec.max_time = config::Duration{60};
  EXPECT_TRUE(plan_of(spec, kImages).is_time_limited());
}

TEST(Plan, CountsPartialStepUnlessDropped) {
  TrainSpec spec;
  spec.global_batch_size = 300;
  spec.max_epochs = 1;
  EXPECT_EQ(plan_of(spec, kImages).steps_per_epoch, 4);
  PlanFacts dropping = kImages;
  dropping.drop_last = true;
  EXPECT_EQ(plan_of(spec, dropping).steps_per_epoch, 3);
  spec.global_batch_size = 1000;
  EXPECT_EQ(plan_of(spec, dropping).steps_per_epoch, 1);
  spec.global_batch_size = 1001;
  EXPECT_THAT(message_of([&] { plan_of(spec, dropping); }), testing::HasSubstr("data.last: pad"));
}

TEST(Plan, ConvertsEveryUnitToSteps) {
  TrainSpec spec;
  spec.global_batch_size = 100;
  spec.max_epochs = 10;
  const Plan plan = plan_of(spec, kText);  // 10 steps per epoch, 100 steps, 6400 tokens per step
  EXPECT_EQ(plan.steps_of({30, Length::Unit::steps}, "k"), 30);
  EXPECT_EQ(plan.steps_of({1.5, Length::Unit::epochs}, "k"), 15);
  EXPECT_EQ(plan.steps_of({5, Length::Unit::percent}, "k"), 5);
  EXPECT_EQ(plan.steps_of({64000, Length::Unit::tokens}, "k"), 10);
  EXPECT_THAT(message_of([&] {
                plan.steps_of({60, Length::Unit::seconds}, "lr_scheduler.warmup");
              }),
              testing::HasSubstr("lr_scheduler.warmup cannot be a time"));
}

/// After 4 epochs of 100 samples a step, of 10: 40 steps.
PlanFacts after_four_epochs(int64_t first_global_batch) {
  PlanFacts facts = kText;
  facts.start = {.step = 40, .position = {.epoch = 4}, .epochs = 4, .first_global_batch = first_global_batch};
  return facts;
}

TEST(Plan, KeepsEpochsWithAnotherGlobalBatch) {
  TrainSpec spec;
  spec.global_batch_size = 200;  // 5 steps an epoch
  spec.max_epochs = 10;
  const Plan plan = plan_of(spec, after_four_epochs(100));
  EXPECT_EQ(plan.total_steps, 70);
  EXPECT_EQ(plan.epochs_in(40), 4);
  EXPECT_EQ(plan.epochs_in(70), 10);
  const auto next_after = [&](const Length& length, int64_t step) {
    const Cadence cadence = plan.cadence_of(length, "k");
    do ++step;
    while (!cadence.at_step(step));
    return step;
  };
  EXPECT_EQ(next_after({1, Length::Unit::epochs}, 40), 45);
  EXPECT_EQ(next_after({50, Length::Unit::percent}, 40), 45);  // the fifth epoch
  EXPECT_EQ(next_after({64000, Length::Unit::tokens}, 40), 45);
  EXPECT_EQ(next_after({7, Length::Unit::steps}, 40), 42);
  spec.max_epochs.reset();
  spec.max_tokens = 64000 * 10;
  EXPECT_EQ(plan_of(spec, after_four_epochs(100)).total_steps, 70);
}

TEST(Plan, KeepsStepsWithAnotherGlobalBatch) {
  TrainSpec spec;
  spec.global_batch_size = 200;
  spec.max_steps = 60;
  const Plan plan = plan_of(spec, after_four_epochs(100));
  EXPECT_EQ(plan.total_steps, 60);
  EXPECT_EQ(plan.curve_step(40), 40);
  EXPECT_EQ(plan.curve_steps(), 60);
  EXPECT_EQ(plan.steps_of_curve({10, Length::Unit::steps}, "k"), 10);
  EXPECT_EQ(plan.steps_of_curve({1, Length::Unit::epochs}, "k"), 10);  // it took so many
}

TEST(Plan, LeavesLearningRateAtItsShareOfTraining) {
  TrainSpec spec;
  spec.max_epochs = 10;
  for (const auto& [global_batch, steps, warmup] : {std::tuple{200, 50, 5}, {100, 100, 10}, {50, 200, 20}}) {
    spec.global_batch_size = global_batch;
    const Plan plan = plan_of(spec, after_four_epochs(100));
    EXPECT_EQ(plan.curve_steps(), steps);
    EXPECT_EQ(plan.curve_step(40), steps * 4 / 10);
    EXPECT_EQ(plan.curve_step(plan.total_steps), steps);
    EXPECT_EQ(plan.steps_of_curve({10, Length::Unit::steps}, "k"), warmup);
    EXPECT_EQ(plan.steps_of_curve({1, Length::Unit::epochs}, "k"), warmup);
    EXPECT_EQ(plan.steps_of_curve({10, Length::Unit::percent}, "k"), warmup);
  }
}

TEST(Plan, GoesOnWithinAnEpochWithoutStandingStill) {
  PlanFacts facts = kText;  // 1.8 epochs, with 100 samples a step
  facts.start = {.step = 18, .position = {.epoch = 1, .samples = 800}, .epochs = 1.8, .first_global_batch = 100};
  TrainSpec spec;
  spec.global_batch_size = 500;
  spec.max_epochs = 3;
  const Plan larger = plan_of(spec, facts);
  EXPECT_EQ(larger.total_steps, 21);
  EXPECT_DOUBLE_EQ(larger.epochs_in(18), 1.8);
  EXPECT_EQ(larger.epochs_in(19), 2);
  EXPECT_EQ(larger.epochs_in(21), 3);
  EXPECT_DOUBLE_EQ(larger.curve_step(18) / static_cast<double>(larger.curve_steps()), 0.6);
  const Cadence half = larger.cadence_of(Length{0.5, Length::Unit::epochs}, "k");
  EXPECT_FALSE(half.at_step(18));
  EXPECT_TRUE(half.at_step(19) && half.at_step(20) && half.at_step(21));

  spec.global_batch_size = 50;
  const Plan smaller = plan_of(spec, facts);
  EXPECT_EQ(smaller.total_steps, 18 + 4 + 20);
  EXPECT_DOUBLE_EQ(smaller.epochs_in(19), 1.85);
  const Cadence tenth = smaller.cadence_of(Length{0.1, Length::Unit::epochs}, "k");
  EXPECT_TRUE(tenth.at_step(18) && tenth.at_step(20) && tenth.at_step(22) && tenth.at_step(24));
  EXPECT_FALSE(tenth.at_step(19) || tenth.at_step(21) || tenth.at_step(23));
  spec.max_epochs.reset();
  spec.max_tokens = 64 * 1901;
  EXPECT_EQ(plan_of(spec, facts).total_steps, 18 + 3);
}

TEST(Plan, LeavesLearningRateAtShareOfBrokenEpochs) {
  PlanFacts facts = kText;
  facts.start = {.step = 20, .position = {.epoch = 2}, .epochs = 2, .first_global_batch = 100};
  TrainSpec spec;
  spec.max_tokens = 64 * 2300;
  spec.global_batch_size = 500;
  const Plan plan = plan_of(spec, facts);
  EXPECT_EQ(plan.total_steps, 21);
  EXPECT_NEAR(plan.curve_step(20) / static_cast<double>(plan.curve_steps()), 2 / 2.3, 1e-12);
}

TEST(Plan, EndsWhereLimitsHaveBeenPassed) {
  TrainSpec spec;
  spec.global_batch_size = 10;  // 100 steps an epoch
  spec.max_epochs = 2;
  EXPECT_EQ(plan_of(spec, after_four_epochs(100)).total_steps, 40);
}

TEST(Plan, LeavesSaveIntervalToTheRunByDefault) {
  TrainSpec train;
  train.global_batch_size = 100;
  train.max_epochs = 10;
  CheckpointSpec spec;
  const auto cadence = [&] { return make_plan(train, EvalSpec{}, spec, monitor::LogSpec{}, kText).save; };
  EXPECT_TRUE(cadence().is_auto);
  EXPECT_FALSE(cadence().is_never());
  spec.interval = config::Auto<Length>{Length{2, Length::Unit::epochs}};
  EXPECT_EQ(cadence().steps, 20);
  spec.interval = config::Auto<Length>{Length{30, Length::Unit::seconds}};
  EXPECT_EQ(cadence().seconds, 30);
  EXPECT_FALSE(cadence().is_auto);
  spec.interval.reset();
  EXPECT_TRUE(cadence().is_never());
}

TEST(Plan, LogsTenTimesInAShortRunByDefault) {
  TrainSpec train;
  train.global_batch_size = 100;
  monitor::LogSpec spec;
  PlanFacts facts = kText;
  const auto interval = [&] { return make_plan(train, EvalSpec{}, CheckpointSpec{}, spec, facts).log.steps; };
  for (const auto& [steps, expected] : {std::pair(7, 1), {30, 3}, {499, 49}, {500, 50}, {100000, 50}}) {
    train.max_steps = steps;
    EXPECT_EQ(interval(), expected) << steps;
  }
  facts.start.log_steps = 3;  // a run of 30 steps that is extended
  EXPECT_EQ(interval(), 3);
  spec.interval.value = Length{20, Length::Unit::steps};
  EXPECT_EQ(interval(), 20);
}

TEST(Plan, SavesWhatIsKeptForeverAtAnyInterval) {
  TrainSpec train;
  train.global_batch_size = 100;
  train.max_epochs = 10;
  CheckpointSpec spec;
  const auto cadence = [&] { return make_plan(train, EvalSpec{}, spec, monitor::LogSpec{}, kText).save; };
  spec.keep_every = Length{6, Length::Unit::steps};
  EXPECT_TRUE(cadence().is_auto);
  EXPECT_TRUE(cadence().at_step(12));
  EXPECT_FALSE(cadence().at_step(10));
  spec.interval = config::Auto<Length>{Length{10, Length::Unit::steps}};
  EXPECT_TRUE(cadence().at_step(12) && cadence().at_step(10));
  spec.interval.reset();
  EXPECT_TRUE(!cadence().is_never() && cadence().at_step(12));
  spec.keep_every = Length{1, Length::Unit::percent};
  spec.interval = config::Auto<Length>{Length{1, Length::Unit::percent}};
  EXPECT_EQ(cadence().also_steps, 1);  // 100 steps in all
}

TEST(Plan, SurvivesLengthsBeyondCounting) {
  TrainSpec train;
  train.global_batch_size = 10;
  train.max_epochs = 1e30;
  EXPECT_GT(plan_of(train, kImages).total_steps, int64_t{1} << 60);
  train.max_epochs.reset();
  train.max_tokens = INT64_MAX;
  EXPECT_GT(plan_of(train, kText).total_steps, int64_t{1} << 50);
  train.max_steps = 7;
  EXPECT_EQ(plan_of(train, kText).total_steps, 7);
}

}  // namespace
}  // namespace gputrain::train
