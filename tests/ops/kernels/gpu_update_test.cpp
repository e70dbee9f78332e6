// Weight updates and gradient norms, against ATen.
#include <limits>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "gputrain/ops/flat_update.hpp"
#include "ops/kernels/gpu_case.hpp"

namespace gputrain::ops {
namespace {

using namespace testing_support;

class GpuUpdates : public GpuOperators {};

constexpr int64_t kFlatNumel = 5000, kFlatOwned = 64;

struct Flat {
  at::Tensor values = noise({kFlatNumel}, 1, at::kFloat), gradients = noise({kFlatNumel}, 2, at::kFloat);
  at::Tensor first = at::zeros({kFlatNumel}, on_device()), second = at::zeros({kFlatNumel}, on_device());
  at::Tensor step = at::ones({}, on_device());
  UpdateScalars scalars{.lr = at::full({}, 0.01, on_device()),
                        .found_inf = at::zeros({1}, on_device()),
                        .divisor = at::full({1}, 2, on_device())};
};

const std::vector<FlatStretch> kStretches{{kFlatOwned, 3000, 0.1}, {3000, kFlatNumel, 0}};

TEST_F(GpuUpdates, MatchAtenForAdamW) {
  Flat ours, theirs;
  FlatUpdate update(kStretches);
  const AdamWRule rule;
  ASSERT_TRUE(update.adamw({ours.values, ours.gradients, ours.first, ours.second, ours.step}, ours.scalars, rule));
  for (const FlatStretch& s : kStretches) {
    const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, s.begin, s.end - s.begin); };
    at::_fused_adamw_({part(theirs.values)}, {part(theirs.gradients)}, {part(theirs.first)}, {part(theirs.second)}, {},
                      {theirs.step}, 0.01, rule.beta1, rule.beta2, s.weight_decay, rule.eps, false, false,
                      theirs.scalars.divisor, theirs.scalars.found_inf);
  }
  expect_within(1e-6, ours.values, wide(theirs.values), "values");
  expect_within(1e-6, ours.first, wide(theirs.first), "first average");
  expect_within(2e-5, ours.second, wide(theirs.second), "second average");  // ATen rounds beta2 to fp32
}

// Where ranks share out the state, values and gradients lie elsewhere than their state.
TEST_F(GpuUpdates, FindShiftedValuesAndGradients) {
  constexpr int64_t kState = 1000, kValues = 1600, kGradients = 2000;
  Flat ours, theirs;
  const at::Tensor first = ours.first.narrow(0, 0, kState), second = ours.second.narrow(0, 0, kState);
  FlatUpdate update({{.begin = 0, .end = 200, .values_shift = kValues, .gradients_shift = kGradients},
                     {.begin = 200, .end = kState, .weight_decay = 0.1}});
  const at::Tensor copy = ours.values.to(at::kBFloat16);
  const AdamWRule rule;
  ASSERT_TRUE(update.adamw({ours.values, ours.gradients, first, second, ours.step, copy}, ours.scalars, rule));
  for (const auto& [begin, end, values, gradients, decay] :
       {std::tuple(int64_t{0}, int64_t{200}, kValues, kGradients, 0.0), {200, kState, 0, 0, 0.1}}) {
    const auto part = [begin = begin, size = end - begin](const at::Tensor& flat, int64_t shift) {
      return flat.narrow(0, begin + shift, size);
    };
    at::_fused_adamw_({part(theirs.values, values)}, {part(theirs.gradients, gradients)}, {part(theirs.first, 0)},
                      {part(theirs.second, 0)}, {}, {theirs.step}, 0.01, rule.beta1, rule.beta2, decay, rule.eps, false,
                      false, theirs.scalars.divisor, theirs.scalars.found_inf);
  }
  expect_within(1e-6, ours.values, wide(theirs.values), "values");
  expect_within(1e-6, ours.first, wide(theirs.first), "first average");
  EXPECT_TRUE(copy.equal(ours.values.to(at::kBFloat16)));
}

TEST_F(GpuUpdates, MatchAtenForSgdWithAndWithoutMomentum) {
  for (const double momentum : {0.0, 0.9}) {
    Flat ours, theirs;
    FlatUpdate update(kStretches);
    const at::Tensor velocity = momentum > 0 ? ours.first : at::Tensor();
    const SgdRule rule{.momentum = momentum, .nesterov = momentum > 0};
    ASSERT_TRUE(update.sgd({ours.values, ours.gradients, velocity}, ours.scalars, rule));
    for (const FlatStretch& s : kStretches) {
      const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, s.begin, s.end - s.begin); };
      at::_fused_sgd_({part(theirs.values)}, {part(theirs.gradients)},
                      momentum > 0 ? Tensors{part(theirs.first)} : Tensors{}, s.weight_decay, momentum, 0.01, 0,
                      rule.nesterov, false, false, theirs.scalars.divisor, theirs.scalars.found_inf);
    }
    expect_within(1e-6, ours.values, wide(theirs.values), "values");
    if (momentum > 0) expect_within(1e-6, ours.first, wide(theirs.first), "velocity");
  }
}

TEST_F(GpuUpdates, WriteWorkingCopyUnlessSkipped) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    Flat flat;
    FlatUpdate update(kStretches);
    const at::Tensor copy = flat.values.to(type);
    const auto expect_cast = [&] { EXPECT_TRUE(copy.equal(flat.values.to(type))); };
    ASSERT_TRUE(
        update.adamw({flat.values, flat.gradients, flat.first, flat.second, flat.step, copy}, flat.scalars, {}));
    expect_cast();
    ASSERT_TRUE(update.sgd({flat.values, flat.gradients, {}, copy}, flat.scalars, {}));
    expect_cast();
    const at::Tensor before = copy.clone();
    flat.scalars.found_inf->fill_(1);
    ASSERT_TRUE(update.sgd({flat.values, flat.gradients, {}, copy}, flat.scalars, {}));
    EXPECT_TRUE(copy.equal(before));
    expect_cast();
  }
}

TEST_F(GpuUpdates, LeaveUnalignedStretchesToAten) {
  Flat flat;
  FlatUpdate update({{0, 3, 0}});
  EXPECT_FALSE(update.sgd({flat.values, flat.gradients, {}}, flat.scalars, {}));
}

TEST_F(GpuUpdates, MeasureGradient) {
  const at::Tensor gradient = noise({30001}, 1, at::kFloat), square = square_sum(gradient);
  ASSERT_TRUE(square.defined());
  expect_within(1e-7, square.view({1}), wide(gradient).square().sum().view({1}), "square");
  const GradientScalars scalars = gradient_scalars(square, at::full({}, 4, on_device()), 1.0);
  const double norm = wide(gradient).norm().item<double>() / 4;
  EXPECT_NEAR(scalars.norm.item<double>(), norm, 1e-5);
  EXPECT_NEAR(scalars.divisor.item<float>(), 4 * norm, 1e-3);
  EXPECT_EQ(scalars.found_inf.item<float>(), 0);
}

TEST_F(GpuUpdates, MeasureNonFiniteGradientOfNewSize) {
  const at::Tensor gradient = at::full({4321}, std::numeric_limits<float>::infinity(), on_device());
  const at::Tensor square = square_sum(gradient);
  ASSERT_TRUE(square.defined());
  EXPECT_EQ(gradient_scalars(square, std::nullopt, 1.0).found_inf.item<float>(), 1);
}

}  // namespace
}  // namespace gputrain::ops
