#include "gputrain/optim/gradients.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "gputrain/optim/grad_scaler.hpp"
#include "optim_fixture.hpp"

namespace gputrain::optim {
namespace {

double exact_norm(const at::Tensor& flat) { return std::sqrt(flat.to(at::kDouble).square().sum().item<double>()); }

TEST(MeasureGradient, ComputesNormOfAnyLength) {
  for (const int64_t numel : {1, 31, 512, 513, 100'000}) {
    const at::Tensor gradient = at::randn({numel});
    const GradientReport report = measure_gradient({gradient}, {});
    EXPECT_NEAR(report.norm.item<double>(), exact_norm(gradient), 1e-6 * exact_norm(gradient)) << numel;
    EXPECT_EQ(report.found_inf.item<float>(), 0);
    EXPECT_FALSE(report.divisor.has_value());
  }
}

TEST(MeasureGradient, StaysExactOverMillionsOfElements) {
  const GradientReport report = measure_gradient({at::full({20'000'000}, 0.005f)}, {});
  EXPECT_NEAR(report.norm.item<double>(), 0.005f * std::sqrt(20e6), 1e-5);
}

TEST(MeasureGradient, ClipsOnlyAboveMaximumNorm) {
  const at::Tensor gradient = at::ones({16});  // norm 4
  const GradientReport above = measure_gradient({gradient}, {.max_norm = 1.0});
  EXPECT_NEAR(above.divisor.value().item<float>(), 4.000001, 1e-6);
  EXPECT_DOUBLE_EQ(above.norm.item<double>(), 4);
  EXPECT_EQ(measure_gradient({gradient}, {.max_norm = 5.0}).divisor.value().item<float>(), 1);
}

TEST(MeasureGradient, RemovesLossScaleFromNormAndUpdate) {
  const at::Tensor gradient = at::full({16}, 1024.0f);  // ones with a loss scale of 1024
  const at::Tensor scale = at::full({}, 1024.0f);
  const GradientReport plain = measure_gradient({gradient}, {.scale = scale});
  EXPECT_DOUBLE_EQ(plain.norm.item<double>(), 4);
  EXPECT_EQ(plain.divisor.value().item<float>(), 1024);
  const GradientReport clipped = measure_gradient({gradient}, {.scale = scale, .max_norm = 2.0});
  EXPECT_NEAR(clipped.divisor.value().item<float>(), 2048, 0.01);
}

TEST(MeasureGradient, ClipsDoubleGradientInPlace) {
  const at::Tensor gradient = at::ones({16}, at::kDouble);
  const GradientReport report = measure_gradient({gradient}, {.max_norm = 1.0});
  EXPECT_FALSE(report.divisor.has_value());
  EXPECT_NEAR(exact_norm(gradient), 4 / 4.000001, 1e-15);
}

TEST(MeasureGradient, FindsOneNonFiniteElementAnywhere) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    for (const int64_t place : {int64_t{0}, int64_t{700}, int64_t{1535}, int64_t{1999}}) {
      const at::Tensor gradient = at::randn({2000});
      gradient.narrow(0, place, 1).fill_(bad);
      EXPECT_EQ(measure_gradient({gradient}, {}).found_inf.item<float>(), 1) << bad << " at " << place;
    }
  }
}

TEST(MeasureGradient, AcceptsTinyAndHugeFiniteGradients) {
  EXPECT_EQ(measure_gradient({at::full({4096}, 1e-30f)}, {}).found_inf.item<float>(), 0);
  EXPECT_EQ(measure_gradient({at::full({4096}, 65504.0f * 65536)}, {}).found_inf.item<float>(), 0);
}

class GradScalerParity : public OptimTest {};

TEST_F(GradScalerParity, MatchesTorchUnderInfinities) {
  GPUTRAIN_NEED_REFERENCE("torch");
  const std::vector<int> infinite_steps{3, 4, 20, 21, 22, 23, 24, 25, 45};
  const std::vector<double> expected = ask_reference("scaler", {"5", "[3,4,20,21,22,23,24,25,45]"});
  ASSERT_EQ(expected.size(), 120u);
  GradScaler scaler(at::kCPU, {.growth_interval = 5});
  for (int step = 0; step < 60; ++step) {
    const bool infinite = std::count(infinite_steps.begin(), infinite_steps.end(), step) > 0;
    const at::Tensor gradient = scaler.scale().mul(infinite ? std::numeric_limits<float>::infinity() : 1).expand({3});
    scaler.update(measure_gradient({gradient}, {.scale = scaler.scale()}).found_inf);
    const GradScaler::State state = scaler.state();
    EXPECT_EQ(state.scale, expected[static_cast<size_t>(2 * step)]) << step;
    EXPECT_EQ(static_cast<double>(state.growth_tracker), expected[static_cast<size_t>(2 * step + 1)]) << step;
  }
}

TEST(GradScaler, StartsAndGrowsLikeTorch) {
  GradScaler scaler(at::kCPU);
  EXPECT_EQ(scaler.state().scale, 65536);
  for (int step = 0; step < 1999; ++step) scaler.update(at::zeros({1}));
  EXPECT_EQ(scaler.state().scale, 65536);
  scaler.update(at::zeros({1}));
  EXPECT_EQ(scaler.state().scale, 131072);
}

TEST(GradScaler, StopsAtItsFloorAndSaysSo) {
  GradScaler scaler(at::kCPU);
  for (int step = 0; step < 29; ++step) scaler.update(at::ones({1}));
  EXPECT_FALSE(scaler.has_collapsed());
  for (int step = 0; step < 9; ++step) scaler.update(at::ones({1}));
  EXPECT_TRUE(scaler.has_collapsed());
  EXPECT_EQ(scaler.state().scale, GradScaler::kFloor);
}

TEST(GradScaler, ContinuesFromRestoredState) {
  GradScaler first(at::kCPU, {.growth_interval = 4}), second(at::kCPU, {.growth_interval = 4});
  first.update(at::ones({1}));
  for (int step = 0; step < 3; ++step) first.update(at::zeros({1}));
  second.restore(first.state());
  first.update(at::zeros({1}));
  second.update(at::zeros({1}));
  EXPECT_EQ(first.state().scale, 65536);
  EXPECT_EQ(second.state().scale, 65536);
  EXPECT_EQ(second.state().growth_tracker, 0);
}

}  // namespace
}  // namespace gputrain::optim
