#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rms_norm.h>
#include <gtest/gtest.h>

#include "../../src/ops/cpu/float_kernels.hpp"
#include "gputrain/ops/activation.hpp"
#include "gputrain/ops/normalization.hpp"
#include "ops/compare.hpp"

namespace gputrain::ops {
namespace {

using testing_support::random_leaf;
using testing_support::relative_error;

std::vector<const cpu::FloatKernels*> kernels() {
  std::vector<const cpu::FloatKernels*> list;
  for (const auto* const* next = cpu::available_kernels(); *next != nullptr; ++next) list.push_back(*next);
  return list;
}

class CpuKernels : public testing::TestWithParam<const cpu::FloatKernels*> {};
INSTANTIATE_TEST_SUITE_P(Sets, CpuKernels, testing::ValuesIn(kernels()),
                         [](const auto& entry) { return std::string(entry.param->name); });

at::Tensor gelu_of(const cpu::FloatKernels& set, const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  set.gelu_tanh(1, x.numel(), x.const_data_ptr<float>(), y.mutable_data_ptr<float>());
  return y;
}

TEST_P(CpuKernels, ComputeGeluToTheLastDigits) {
  const at::Tensor x = at::arange(-120000, 120001, at::kFloat).div(10000);  // beyond 10 the result is x or 0
  const at::Tensor exact = at::gelu(x.to(at::kDouble), "tanh");
  const at::Tensor error = (gelu_of(*GetParam(), x).to(at::kDouble) - exact).abs();
  EXPECT_LT((error / (exact.abs() + 1e-6)).max().item<double>(), 2e-6);
  EXPECT_LT(error.max().item<double>(), 1e-6);
}

TEST_P(CpuKernels, PassNanAndInfinityThroughGelu) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float x[4] = {std::nanf(""), infinity, -infinity, 3e38F};
  float y[4] = {};
  GetParam()->gelu_tanh(1, 4, x, y);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], infinity);
  EXPECT_FALSE(std::isfinite(y[2]) && y[2] != 0);  // PyTorch returns NaN for -infinity, the limit is 0
  EXPECT_EQ(y[3], 3e38F);
}

TEST_P(CpuKernels, ComputeGeluDerivative) {
  const at::Tensor x = random_leaf({5001}, 1, at::kFloat).detach(), dy = random_leaf({5001}, 2, at::kFloat).detach();
  const at::Tensor leaf = x.to(at::kDouble).set_requires_grad(true);
  (at::gelu(leaf, "tanh") * dy.to(at::kDouble)).sum().backward();
  at::Tensor dx = at::empty_like(x);
  GetParam()->gelu_tanh_backward(1, x.numel(), x.const_data_ptr<float>(), dy.const_data_ptr<float>(),
                                 dx.mutable_data_ptr<float>());
  EXPECT_LT(relative_error(dx, leaf.grad()), 5e-7);
}

struct NormCase {
  at::Tensor x, weight, bias, dy;  // bias undefined: RMS norm
};
struct NormResult {
  at::Tensor y, dx, dweight, dbias;
};

NormCase norm_case(int64_t rows, int64_t channels, bool centred) {
  // Far from zero: a careless mean would lose digits.
  const at::Tensor x = (random_leaf({rows, channels}, 1, at::kFloat).detach() + (centred ? 10 : 0)).contiguous();
  const auto vector = [&](uint64_t seed) { return random_leaf({channels}, seed, at::kFloat).detach(); };
  return {x, vector(2), centred ? vector(3) : at::Tensor(), random_leaf({rows, channels}, 4, at::kFloat).detach()};
}

NormResult run(const cpu::FloatKernels& set, const NormCase& input, int threads) {
  const bool centred = input.bias.defined();
  const int64_t rows = input.x.size(0), channels = input.x.size(1);
  std::vector<float> mean(static_cast<size_t>(rows)), rstd(mean.size());
  const cpu::NormRows arguments{.rows = rows,
                                .channels = channels,
                                .centred = centred,
                                .eps = 1e-5F,
                                .x = input.x.const_data_ptr<float>(),
                                .weight = input.weight.const_data_ptr<float>(),
                                .bias = centred ? input.bias.const_data_ptr<float>() : nullptr,
                                .mean = centred ? mean.data() : nullptr,
                                .rstd = rstd.data()};
  NormResult result{at::empty_like(input.x), at::empty_like(input.x)};
  set.norm(threads, arguments, result.y.mutable_data_ptr<float>());
  const int64_t partials = cpu::partials_of(rows);
  const at::Tensor dweight = at::empty({partials, channels}, at::kFloat), dbias = at::empty_like(dweight);
  set.norm_backward(threads, arguments, input.dy.const_data_ptr<float>(), result.dx.mutable_data_ptr<float>(),
                    dweight.mutable_data_ptr<float>(), centred ? dbias.mutable_data_ptr<float>() : nullptr);
  result.dweight = dweight.sum(0);
  if (centred) result.dbias = dbias.sum(0);
  return result;
}

NormResult exact(const NormCase& input) {
  const auto leaf = [](const at::Tensor& tensor) { return tensor.to(at::kDouble).set_requires_grad(true); };
  const at::Tensor x = leaf(input.x), weight = leaf(input.weight);
  const at::Tensor bias = input.bias.defined() ? leaf(input.bias) : at::Tensor();
  const at::Tensor y = bias.defined() ? at::layer_norm(x, weight.sizes(), weight, bias, 1e-5)
                                      : at::rms_norm(x, weight.sizes(), weight, 1e-5F);
  (y * input.dy.to(at::kDouble)).sum().backward();
  return {y, x.grad(), weight.grad(), bias.defined() ? bias.grad() : at::Tensor()};
}

/// Relative error with a floor, for gradients that may cancel to nearly zero.
double error_beyond(const at::Tensor& ours, const at::Tensor& expected, double floor) {
  return (ours.to(at::kDouble) - expected).norm().item<double>() / (expected.norm().item<double>() + floor);
}

TEST_P(CpuKernels, ComputeNormsAndGradientsForAnyShape) {
  const std::vector<std::pair<int64_t, int64_t>> shapes{{1, 3}, {3, 7}, {130, 33}, {65, 768}};
  for (const bool centred : {true, false}) {
    for (const auto& [rows, channels] : shapes) {
      const NormCase input = norm_case(rows, channels, centred);
      const NormResult ours = run(*GetParam(), input, 1), expected = exact(input);
      const std::string place = std::to_string(rows) + " x " + std::to_string(channels);
      EXPECT_LT(relative_error(ours.y, expected.y), 2e-6) << place;
      EXPECT_LT(error_beyond(ours.dx, expected.dx, 1e-3), 3e-6) << place;
      EXPECT_LT(error_beyond(ours.dweight, expected.dweight, 1e-3), 3e-6) << place;
      if (!centred) continue;
      EXPECT_LT(relative_error(ours.dbias, expected.dbias), 2e-6) << place;
    }
  }
}

TEST_P(CpuKernels, GiveSameBitsOnAnyThreadCount) {
  const NormCase input = norm_case(1000, 33, true);
  const NormResult one = run(*GetParam(), input, 1), three = run(*GetParam(), input, 3);
  EXPECT_TRUE(one.y.equal(three.y));
  EXPECT_TRUE(one.dx.equal(three.dx));
  EXPECT_TRUE(one.dweight.equal(three.dweight));
  EXPECT_TRUE(one.dbias.equal(three.dbias));
  const at::Tensor x = random_leaf({100003}, 5, at::kFloat).detach();
  at::Tensor y = at::empty_like(x);
  GetParam()->gelu_tanh(3, x.numel(), x.const_data_ptr<float>(), y.mutable_data_ptr<float>());
  EXPECT_TRUE(y.equal(gelu_of(*GetParam(), x)));
}

// The operators on the autograd graph: fused in fp32 against ATen in fp64.
TEST(FusedOperators, MatchReferenceWithGradients) {
  const auto both = [](const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
                       std::vector<at::IntArrayRef> shapes) {
    std::vector<at::Tensor> single, wide;
    for (size_t i = 0; i < shapes.size(); ++i) {
      single.push_back(random_leaf(shapes[i], i + 1, at::kFloat));
      wide.push_back(single.back().detach().to(at::kDouble).set_requires_grad(true));
    }
    const at::Tensor y = function(single), expected = function(wide);
    EXPECT_EQ(y.scalar_type(), at::kFloat);
    EXPECT_LT(relative_error(y, expected), 1e-6);
    const at::Tensor weights = random_leaf(y.sizes(), 9).detach();
    (y * weights.to(at::kFloat)).sum().backward();
    (expected * weights).sum().backward();
    for (size_t i = 0; i < shapes.size(); ++i) {
      EXPECT_LT(relative_error(single[i].grad(), wide[i].grad()), 1e-6) << "operand " << i;
    }
  };
  using Operands = const std::vector<at::Tensor>&;
  both([](Operands t) { return activate(t[0], Activation::gelu_tanh); }, {{4, 5, 33}});
  both([](Operands t) { return layer_norm(t[0], t[1], t[2], 1e-5); }, {{4, 50, 33}, {33}, {33}});
  both([](Operands t) { return layer_norm(t[0], t[1], {}, 1e-5); }, {{4, 50, 33}, {33}});
  both([](Operands t) { return rms_norm(t[0], t[1], 1e-5); }, {{4, 50, 33}, {33}});
  both([](Operands t) { return layer_norm(t[0].transpose(0, 1), t[1], t[2], 1e-5); }, {{6, 5, 33}, {33}, {33}});
  both([](Operands t) { return activate(t[0].transpose(0, 1), Activation::gelu_tanh); }, {{6, 5, 33}});
}

}  // namespace
}  // namespace gputrain::ops
