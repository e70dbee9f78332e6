// Fused batch norm, addition and ReLU on a CPU: each instruction set's loops against loops in double, and the operator
// against ATen in fp64.
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "../../src/ops/cpu/float_kernels.hpp"
#include "../../src/ops/cpu/fused.hpp"
#include "gputrain/ops/normalization.hpp"
#include "ops/compare.hpp"

namespace gputrain::ops {
namespace {

using testing_support::random_leaf;
using testing_support::relative_error;

at::Tensor numbers(at::IntArrayRef sizes, uint64_t seed) { return random_leaf(sizes, seed, at::kFloat).detach(); }

/// ||ours - expected|| / ||expected||, for gradients that may cancel to nearly zero.
double gradient_difference(const at::Tensor& ours, const at::Tensor& expected) {
  return (ours.to(at::kDouble) - expected).norm().item<double>() / (expected.norm().item<double>() + 1e-3);
}

/// Operands of the four loops, with random values.
struct KernelCase {
  KernelCase(int64_t rows, int64_t channels)
      : x(numbers({rows, channels}, 1) + 50),
        residual(numbers({rows, channels}, 2)),
        dy(numbers({rows, channels}, 3)),
        scale(numbers({channels}, 4)),
        mean(numbers({channels}, 5) + 50),
        shift(numbers({channels}, 6) - mean * scale),
        slope(numbers({channels}, 7)),
        offset(numbers({channels}, 8)) {}

  cpu::BatchRows batch() const {
    return {.rows = x.size(0),
            .channels = x.size(1),
            .x = x.const_data_ptr<float>(),
            .scale = scale.const_data_ptr<float>(),
            .shift = shift.const_data_ptr<float>()};
  }
  cpu::BatchGradient gradient(const float* y) const {
    return {.dy = dy.const_data_ptr<float>(),
            .y = y,
            .mean = mean.const_data_ptr<float>(),
            .slope = slope.const_data_ptr<float>(),
            .offset = offset.const_data_ptr<float>()};
  }

  at::Tensor x, residual, dy, scale, mean, shift, slope, offset;
};

struct KernelResult {
  at::Tensor mean, squares, y, sum_g, sum_gx, dx, dresidual;  // dresidual is undefined without a residual

  std::vector<at::Tensor> all() const {
    std::vector<at::Tensor> list{mean, squares, y, sum_g, sum_gx, dx};
    if (dresidual.defined()) list.push_back(dresidual);
    return list;
  }
};

KernelResult run(const cpu::FloatKernels& set, const KernelCase& input, bool with_residual, int threads) {
  const at::Tensor partials = at::empty({cpu::partials_of(input.x.size(0)), input.x.size(1)}, at::kFloat);
  const auto like = [](const at::Tensor& tensor) { return at::full(tensor.sizes(), std::nanf(""), at::kFloat); };
  KernelResult result{like(partials), like(partials), like(input.x), like(partials), like(partials), like(input.x)};
  if (with_residual) result.dresidual = like(input.x);
  const auto write = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr;
  };
  set.batch_statistics(threads, input.batch(), write(result.mean), write(result.squares));
  set.batch_norm_relu(threads, input.batch(), with_residual ? input.residual.const_data_ptr<float>() : nullptr,
                      write(result.y));
  const auto gradient = input.gradient(with_residual ? result.y.const_data_ptr<float>() : nullptr);
  set.batch_sums(threads, input.batch(), gradient, write(result.sum_g), write(result.sum_gx));
  set.batch_norm_relu_backward(threads, input.batch(), gradient, write(result.dx), write(result.dresidual));
  return result;
}

/// Applies `function` to the rows of each part with its own partial sum: [partials, channels].
at::Tensor over_parts(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& function) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : x.split(cpu::kRowsPerPartial)) parts.push_back(function(part));
  return at::stack(parts);
}

/// The loops' definitions in float_kernels.hpp, in double.
KernelResult exact(const KernelCase& input, bool with_residual) {
  const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
  const auto sum = [](const at::Tensor& part) { return part.sum(0); };
  const at::Tensor x = wide(input.x);
  at::Tensor value = x * wide(input.scale) + wide(input.shift);
  if (with_residual) value = value + wide(input.residual);
  const at::Tensor g = wide(input.dy) * (value > 0), distance = x - wide(input.mean);
  return {.mean = over_parts(x, [](const at::Tensor& part) { return part.mean(0); }),
          .squares = over_parts(x, [](const at::Tensor& part) { return (part - part.mean(0)).square().sum(0); }),
          .y = value.clamp_min(0),
          .sum_g = over_parts(g, sum),
          .sum_gx = over_parts(g * distance, sum),
          .dx = g * wide(input.scale) + distance * wide(input.slope) + wide(input.offset),
          .dresidual = with_residual ? g : at::Tensor()};
}

/// Calls `check` with each instruction set; failures name the set.
void on_each_set(const std::function<void(const cpu::FloatKernels&)>& check) {
  for (const auto* const* next = cpu::available_kernels(); *next != nullptr; ++next) {
    SCOPED_TRACE((*next)->name);
    check(**next);
  }
}

TEST(BatchNormCpuKernels, MatchReferenceForAnyShape) {
  on_each_set([](const cpu::FloatKernels& set) {
    for (const auto& shape :
         std::vector<std::vector<int64_t>>{{2, 1}, {3, 5}, {64, 16}, {65, 3}, {245, 19}, {128, 64}, {2050, 33}}) {
      const KernelCase input(shape[0], shape[1]);
      for (const bool with_residual : {false, true}) {
        const auto ours = run(set, input, with_residual, 1).all(), expected = exact(input, with_residual).all();
        ASSERT_EQ(ours.size(), expected.size());
        for (size_t i = 0; i < ours.size(); ++i) {
          EXPECT_LT(gradient_difference(ours[i], expected[i]), 3e-5)
              << "result " << i << " of " << shape[0] << " x " << shape[1] << (with_residual ? " with" : " without")
              << " a residual";
        }
      }
    }
  });
}

TEST(BatchNormCpuKernels, GiveSameBitsOnAnyThreadCount) {
  on_each_set([](const cpu::FloatKernels& set) {
    const KernelCase input(2331, 19);  // large enough for several threads
    for (const bool with_residual : {false, true}) {
      const auto one = run(set, input, with_residual, 1).all(), three = run(set, input, with_residual, 3).all();
      for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(three[i])) << "result " << i;
    }
  });
}

TEST(BatchNormCpuKernels, ZeroReluGradientAtZeroAndPassNan) {
  on_each_set([](const cpu::FloatKernels& set) {
    const float x[4] = {0, -1, 1, std::nanf("")}, dy[4] = {1, 2, 4, 8}, one = 1, zero = 0;
    float y[4], dx[4], sum_g = 0, sum_gx = 0;
    const cpu::BatchRows batch{.rows = 4, .channels = 1, .x = x, .scale = &one, .shift = &zero};
    set.batch_norm_relu(1, batch, nullptr, y);
    EXPECT_EQ(y[0], 0);
    EXPECT_EQ(y[1], 0);
    EXPECT_EQ(y[2], 1);
    EXPECT_TRUE(std::isnan(y[3]));
    const cpu::BatchRows numbers_only{.rows = 3, .channels = 1, .x = x, .scale = &one, .shift = &zero};
    const cpu::BatchGradient gradient{.dy = dy, .y = nullptr, .mean = &zero, .slope = &zero, .offset = &zero};
    set.batch_sums(1, numbers_only, gradient, &sum_g, &sum_gx);
    EXPECT_EQ(sum_g, 4);  // PyTorch's ReLU passes no gradient at 0
    EXPECT_EQ(sum_gx, 4);
    set.batch_norm_relu_backward(1, numbers_only, gradient, dx, nullptr);
    EXPECT_EQ(dx[0], 0);
    EXPECT_EQ(dx[1], 0);
    EXPECT_EQ(dx[2], 4);
  });
}

struct OperatorCase {
  std::vector<int64_t> sizes;
  bool with_residual = false;
  double offset = 0;  // of x from zero
  BatchNormOptions options = {};
  at::MemoryFormat format = at::MemoryFormat::ChannelsLast;
};

/// relu(batch_norm(x) + residual): output, running statistics and gradients.
struct OperatorResult {
  at::Tensor y, mean, variance;
  std::vector<at::Tensor> gradients;  // of x, weight, bias and, if present, the residual
};

OperatorResult run(const OperatorCase& input, at::ScalarType type) {
  const auto leaf = [&](const at::Tensor& values) {  // the same values in both types
    const at::Tensor ordered = values.dim() == 4 ? values.contiguous(input.format) : values;
    return ordered.to(type).set_requires_grad(true);
  };
  const int64_t channels = input.sizes[1];
  std::vector<at::Tensor> leaves{leaf(numbers(input.sizes, 1) + input.offset), leaf(numbers({channels}, 2)),
                                 leaf(numbers({channels}, 3))};
  if (input.with_residual) leaves.push_back(leaf(numbers(input.sizes, 4)));
  OperatorResult result{.mean = numbers({channels}, 6).to(type), .variance = at::ones({channels}, type)};
  result.y = batch_norm_relu(leaves[0], leaves[1], leaves[2], result.mean, result.variance, input.options,
                             input.with_residual ? leaves[3] : at::Tensor());
  (result.y * numbers(input.sizes, 5).to(type)).sum().backward();
  for (const at::Tensor& operand : leaves) result.gradients.push_back(operand.grad());
  return result;
}

void expect_equal(const OperatorCase& input, double tolerance) {
  SCOPED_TRACE(std::to_string(input.sizes[0]) + " images of " + std::to_string(input.sizes[1]) + " channels, offset " +
               std::to_string(input.offset) + (input.with_residual ? ", with a residual" : ""));
  const auto ours = run(input, at::kFloat), expected = run(input, at::kDouble);
  EXPECT_LT(relative_error(ours.y, expected.y), tolerance);
  EXPECT_LT(relative_error(ours.mean, expected.mean), 1e-6);
  EXPECT_LT(relative_error(ours.variance, expected.variance), 1e-6);
  for (size_t i = 0; i < ours.gradients.size(); ++i) {
    // Two values per channel normalise to +-1: their gradient is only rounding error.
    if (i == 0 && input.sizes[0] * input.sizes[2] * input.sizes[3] == 2) continue;
    EXPECT_LT(gradient_difference(ours.gradients[i], expected.gradients[i]), 5 * tolerance) << "operand " << i;
  }
}

TEST(FusedBatchNorm, MatchesReferenceInFp64) {
  for (const auto& sizes :
       std::vector<std::vector<int64_t>>{{8, 5, 7, 9}, {2, 64, 1, 1}, {1, 4, 3, 3}, {4, 1, 3, 3}, {3, 17, 40, 41}}) {
    for (const bool with_residual : {false, true}) expect_equal({.sizes = sizes, .with_residual = with_residual}, 2e-6);
  }
}

TEST(FusedBatchNorm, KeepsDigitsFarFromZero) {
  // x itself has six digits after the decimal point here; sums of squares would lose all of them.
  for (const bool with_residual : {false, true}) {
    expect_equal({.sizes = {6, 5, 13, 11}, .with_residual = with_residual, .offset = 100}, 3e-5);
  }
}

TEST(FusedBatchNorm, FollowsMomentumAndEps) {
  for (const double momentum : {0.0, 0.1, 1.0}) {
    for (const double eps : {1e-5, 0.5}) {
      expect_equal({.sizes = {4, 3, 5, 5}, .options = {.momentum = momentum, .eps = eps}}, 2e-6);
    }
  }
}

TEST(FusedBatchNorm, UsesRunningStatisticsInEvaluation) {
  const OperatorCase input{.sizes = {4, 3, 5, 5}, .with_residual = true, .options = {.training = false}};
  expect_equal(input, 2e-6);
  const OperatorResult result = run(input, at::kFloat);
  EXPECT_TRUE(result.mean.equal(numbers({3}, 6)));
  EXPECT_TRUE(result.variance.equal(at::ones({3})));
}

TEST(FusedBatchNorm, FallsBackForOtherMemoryOrders) {
  const at::Tensor planes = numbers({2, 3, 4, 4}, 1), rows = planes.contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(cpu::is_fusible_batch(rows, rows));
  EXPECT_FALSE(cpu::is_fusible_batch(rows, planes));
  EXPECT_FALSE(cpu::is_fusible_batch(planes, rows));
  EXPECT_FALSE(cpu::is_fusible_batch(rows, rows.slice(0, 0, 1)));
  EXPECT_FALSE(cpu::is_fusible_batch(numbers({1, 3, 1, 1}, 1), {}));  // ATen then reports the error
  EXPECT_FALSE(cpu::is_fusible_batch(rows.to(at::kBFloat16), {}));
  expect_equal({.sizes = {4, 5, 7, 9}, .with_residual = true, .format = at::MemoryFormat::Contiguous}, 2e-6);
}

TEST(FusedBatchNorm, GivesSameBitsOnAnyThreadCount) {
  const int threads = at::get_num_threads();
  // The second one has so many partial sums that threads share them.
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{4, 19, 33, 35}, {8, 100, 40, 41}}) {
    const OperatorCase input{.sizes = sizes, .with_residual = true, .offset = 1};
    at::set_num_threads(1);
    const auto one = run(input, at::kFloat);
    at::set_num_threads(3);
    const auto three = run(input, at::kFloat);
    at::set_num_threads(threads);
    EXPECT_TRUE(one.y.equal(three.y));
    EXPECT_TRUE(one.mean.equal(three.mean));
    EXPECT_TRUE(one.variance.equal(three.variance));
    for (size_t i = 0; i < one.gradients.size(); ++i) EXPECT_TRUE(one.gradients[i].equal(three.gradients[i])) << i;
    expect_equal(input, 5e-6);
  }
}

TEST(FusedBatchNorm, PassesNanThroughRelu) {
  at::Tensor x = numbers({2, 3, 4, 4}, 1).contiguous(at::MemoryFormat::ChannelsLast);
  x.select(1, 1).fill_(std::nanf(""));
  const at::Tensor ones = at::ones({3}), mean = at::zeros({3}), variance = at::ones({3});
  const at::Tensor y = batch_norm_relu(x, ones, ones, mean, variance, {.training = true}, {});
  EXPECT_TRUE(y.select(1, 1).isnan().all().item<bool>());
  EXPECT_FALSE(y.select(1, 0).isnan().any().item<bool>());
}

TEST(FusedBatchNorm, MatchesFiniteDifferencesUnfused) {
  const at::Tensor x = random_leaf({3, 2, 2, 2}, 1), weight = random_leaf({2}, 2), bias = random_leaf({2}, 3),
                   residual = random_leaf({3, 2, 2, 2}, 4);
  const auto sum = [&] {
    const at::Tensor mean = at::zeros({2}, at::kDouble), variance = at::ones({2}, at::kDouble);
    const at::Tensor y = batch_norm_relu(x, weight, bias, mean, variance, {.training = true}, residual);
    return (y * random_leaf(y.sizes(), 9).detach()).sum();
  };
  EXPECT_LT(testing_support::gradient_error(sum, {x, weight, bias, residual}), 1e-6);
}

/// For example, the last step of an epoch has one sample left and the network has reduced its image to one pixel.
TEST(BatchNorm, KeepsStatisticsFiniteForOneValue) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const auto channels = [&](double value) { return at::full({8}, value, at::TensorOptions().dtype(type)); };
    const at::Tensor x = random_leaf({1, 8, 1, 1}, 1, type), weight = channels(2), bias = channels(3);
    for (const bool relu : {false, true}) {
      const at::Tensor mean = channels(0), variance = channels(1);
      const at::Tensor y = relu ? batch_norm_relu(x, weight, bias, mean, variance, {}, {})
                                : batch_norm(x, weight, bias, mean, variance, {});
      EXPECT_TRUE(y.allclose(channels(3), 1e-4));
      EXPECT_TRUE(mean.allclose(x.detach().flatten() * 0.1));
      EXPECT_TRUE(variance.allclose(channels(0.9)));
    }
  }
}

}  // namespace
}  // namespace gputrain::ops
