// The hook looks at flags every few steps, as on a GPU, and must still name the right step.
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::train {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLookEvery = 8;

class FiniteHookTest : public ::testing::Test {
 protected:
  NonFiniteGuard& hook() {
    if (!hook_) {
      hook_.emplace(NonFiniteGuard::Parts{.spec = spec_,
                                          .look_every = kLookEvery,
                                          .scaler = scaler_,
                                          .plan = plan_,
                                          .order = {.samples = 100, .global_batch = 2},
                                          .ledger = ledger_});
    }
    return *hook_;
  }
  Stop take_step(bool is_finite, bool requested = false) {
    ++progress_.step;
    return hook().after_step(progress_, {.found_inf = at::full({1}, is_finite ? 0.0 : 1.0, at::kFloat)}, requested);
  }
  std::string error_of_step(bool is_finite) {
    try {
      take_step(is_finite);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  TrainSpec spec_;
  Plan plan_;
  optim::GradScaler* scaler_ = nullptr;
  monitor::Ledger ledger_;
  Progress progress_;
  std::optional<NonFiniteGuard> hook_;
};

TEST_F(FiniteHookTest, ChecksLateAndNamesTheStep) {
  for (int64_t step = 1; step < kLookEvery; ++step) EXPECT_EQ(take_step(step != 3), Stop::none);
  EXPECT_THAT(error_of_step(true), HasSubstr("not finite at step 3 (epoch 0, samples "));
}

TEST_F(FiniteHookTest, ChecksBeforePlannedAndRequestedWork) {
  spec_.nonfinite = "rollback";
  plan_.save.steps = 5;
  EXPECT_EQ(take_step(false), Stop::none);
  EXPECT_EQ(take_step(true, /*asked=*/true), Stop::diverged);
  EXPECT_EQ(take_step(false), Stop::none);
  EXPECT_EQ(take_step(true), Stop::none);
  EXPECT_EQ(take_step(true), Stop::diverged);  // step 5
  EXPECT_THAT(hook().finding(), HasSubstr("at step 3 "));
}

TEST_F(FiniteHookTest, ChecksOnceMoreAtTheEnd) {
  spec_.nonfinite = "rollback";
  EXPECT_EQ(take_step(false), Stop::none);
  EXPECT_EQ(hook().after_training(progress_, false), Stop::diverged);
  EXPECT_EQ(hook().after_training(progress_, false), Stop::none);  // reports each finding only once
}

TEST_F(FiniteHookTest, CountsSkipsInARowAcrossChecks) {
  spec_.nonfinite = "skip";
  spec_.max_skips_in_a_row = 3;
  for (int step = 1; step <= 2 * kLookEvery; ++step) {  // steps 1 to 3, and 7 to 9 across the look
    EXPECT_EQ(take_step(step > 3 && (step < 7 || step > 9)), Stop::none);
  }
  EXPECT_EQ(progress_.nonfinite_steps, 6);
  for (int i = 0; i < kLookEvery; ++i) EXPECT_EQ(take_step(i < 5), Stop::none);  // the last three updates are skipped
  EXPECT_EQ(take_step(false), Stop::none);                                       // the next look finds them
  for (int i = 0; i < 6; ++i) EXPECT_EQ(take_step(true), Stop::none);
  EXPECT_THAT(error_of_step(true), HasSubstr("at step 25 (epoch 0, samples "));
}

TEST_F(FiniteHookTest, IgnoresStepsSkippedByLossScaling) {
  optim::GradScaler scaler(at::kCPU);
  scaler_ = &scaler;
  for (int64_t step = 0; step < 2 * kLookEvery; ++step) EXPECT_EQ(take_step(false), Stop::none);
  EXPECT_EQ(progress_.nonfinite_steps, 0);
  scaler.restore({.scale = optim::GradScaler::kFloor, .growth_tracker = 0});
  for (int64_t step = 1; step < kLookEvery; ++step) EXPECT_EQ(take_step(true), Stop::none);
  EXPECT_THAT(error_of_step(true), HasSubstr("not finite at any loss scale at step 24"));
}

}  // namespace
}  // namespace gputrain::train
