#include "gputrain/optim/spec.hpp"

#include <gmock/gmock.h>

#include "optim_fixture.hpp"

namespace gputrain::optim {
namespace {

using ::testing::HasSubstr;

template <class Spec>
std::string refusal_of(const std::string& yaml) {
  try {
    spec_of<Spec>(yaml);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

TEST(OptimizerSpec, IsAdamWAtOneThousandthByDefault) {
  const auto spec = spec_of<OptimizerSpec>("{}");
  EXPECT_EQ(spec.type.name, "adamw");
  EXPECT_EQ(spec.lr, 1e-3);
}

TEST(OptimizerSpec, ReadsOptionsOfTheRule) {
  const auto spec = spec_of<OptimizerSpec>("{type: sgd, lr: 0.1, momentum: 0.9, weight_decay: 1e-4, no_decay: [norm]}");
  EXPECT_EQ(spec.lr, 0.1);
  EXPECT_TRUE(spec.decays(nn::ParameterRole::bias));
  EXPECT_FALSE(spec.decays(nn::ParameterRole::norm));
  EXPECT_TRUE(spec.decays(nn::ParameterRole::weight));
}

TEST(OptimizerSpec, ScalesRateByBatchOnlyWithABase) {
  EXPECT_DOUBLE_EQ(spec_of<OptimizerSpec>("{lr: 0.256, lr_base_batch_size: 256}").peak_lr(2048), 2.048);
  EXPECT_DOUBLE_EQ(spec_of<OptimizerSpec>("{lr: 0.256}").peak_lr(2048), 0.256);
}

TEST(OptimizerSpec, RefusesInvalidOptions) {
  EXPECT_THAT(refusal_of<OptimizerSpec>("{type: sgd, nesterov: true}"), HasSubstr("momentum"));
  EXPECT_THAT(refusal_of<OptimizerSpec>("{type: sgd, betas: [0.9, 0.95]}"), HasSubstr("betas"));
  EXPECT_THAT(refusal_of<OptimizerSpec>("{type: adamw, betas: [0.9]}"), HasSubstr("betas"));
  EXPECT_THAT(refusal_of<OptimizerSpec>("{type: adamw, betas: [0.9, 1.0]}"), HasSubstr("betas"));
  EXPECT_THAT(refusal_of<OptimizerSpec>("{type: sgd, momentum: 1}"), HasSubstr("momentum"));
  EXPECT_THAT(refusal_of<OptimizerSpec>("{weight_decay: -0.1}"), HasSubstr("weight_decay"));
  EXPECT_THAT(refusal_of<OptimizerSpec>("{lr: 0}"), HasSubstr("lr"));
  EXPECT_THAT(refusal_of<OptimizerSpec>("{no_decay: [biases]}"), HasSubstr("bias"));
}

TEST(OptimizerSpec, AnswersNamesOfOtherTools) {
  EXPECT_THAT(refusal_of<OptimizerSpec>("{learning_rate: 0.1}"), HasSubstr("lr: 0.1"));
  EXPECT_THAT(refusal_of<OptimizerSpec>("{type: sgd, wd: 0.1}"), HasSubstr("weight_decay: 0.1"));
  EXPECT_THAT(refusal_of<LrSchedulerSpec>("{type: cosine, warmup_steps: 100}"), HasSubstr("warmup: 100"));
  EXPECT_THAT(refusal_of<LrSchedulerSpec>("{type: cosine, eta_min: 0}"), HasSubstr("min_lr: 0"));
}

TEST(LrSchedulerSpec, RefusesFloorWhereCurveHasNone) {
  EXPECT_EQ(spec_of<LrSchedulerSpec>("{}").type.name, "constant");
  EXPECT_THAT(refusal_of<LrSchedulerSpec>("{type: constant, min_lr: 0.1}"), HasSubstr("min_lr"));
  EXPECT_EQ(refusal_of<LrSchedulerSpec>("{type: linear, warmup: 5ep, min_lr: 0.1}"), "accepted");
}

}  // namespace
}  // namespace gputrain::optim
