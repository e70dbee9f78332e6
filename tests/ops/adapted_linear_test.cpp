// Frozen layers with adapters of low rank, against dense layers.
#include "gputrain/ops/adapted_linear.hpp"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include "gputrain/ops/frozen_linear.hpp"
#include "gputrain/ops/linear.hpp"
#include "ops/compare.hpp"

namespace gputrain::ops {
namespace {

using testing_support::gradient_error;
using testing_support::random_leaf;
using testing_support::relative_error;

const Policy kDoublePolicy = policy_of(Precision::fp64);

at::Tensor frozen(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type = at::kDouble) {
  return random_leaf(sizes, seed, type).detach();
}

/// A matrix that is kept as two parts, whose sum it is.
FrozenMatrix in_two_parts(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type) {
  return {.parts = {frozen(sizes, seed, type), frozen(sizes, seed + 100, type)},
          .read = [](const std::vector<at::Tensor>& parts,
                     const at::Tensor& into) { at::Tensor(into).copy_(parts[0] + parts[1]); },
          .sizes = sizes.vec()};
}

/// Three layers on 8 channels: with a bias and an adapter, without an adapter, with another rank and scale.
std::vector<AdaptedLinear> layers(at::ScalarType weights = at::kDouble, at::ScalarType master = at::kDouble) {
  return {{.weight = {.parts = {frozen({6, 8}, 1, weights)}, .read = {}},
           .bias = frozen({6}, 2, weights),
           .a = random_leaf({2, 8}, 3, master),
           .b = random_leaf({6, 2}, 4, master),
           .scale = 0.5},
          {.weight = {.parts = {frozen({4, 8}, 5, weights)}, .read = {}}},
          {.weight = in_two_parts({4, 8}, 6, weights),
           .a = random_leaf({3, 8}, 7, master),
           .b = random_leaf({4, 3}, 8, master),
           .scale = 2}};
}

at::Tensor expected(const AdaptedLinear& layer, const at::Tensor& x) {
  at::Tensor y = at::matmul(x, layer.weight.in(x.scalar_type()).t());
  if (layer.bias.defined()) y = y + layer.bias;
  if (!layer.a.defined()) return y;
  const at::Tensor read = layer.dropped.defined() ? layer.dropped : x;
  return y + at::matmul(at::matmul(read, layer.a.t()), layer.b.t()) * layer.scale;
}

at::Tensor weighted_sum(const std::vector<at::Tensor>& all) {
  at::Tensor sum;
  for (size_t i = 0; i < all.size(); ++i) {
    const at::Tensor part = (all[i] * frozen(all[i].sizes(), 90 + i, all[i].scalar_type())).sum();
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

TEST(AdaptedLinears, GiveTheResultsAndGradientsOfTheirParts) {
  const at::Tensor x = random_leaf({2, 3, 8}, 10);
  const std::vector<AdaptedLinear> all = layers();
  const auto results = adapted_linears(kDoublePolicy, x, all);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_LT(relative_error(results[i], expected(all[i], x)), 1e-14) << i;
  EXPECT_LT(gradient_error([&] { return weighted_sum(adapted_linears(kDoublePolicy, x, all)); },
                           {x, all[0].a, all[0].b, all[2].a, all[2].b}),
            1e-8);
}

TEST(AdaptedLinears, ReadWhatDropoutLeavesOfX) {
  const at::Tensor x = random_leaf({5, 8}, 10), other = random_leaf({5, 8}, 11);
  std::vector<AdaptedLinear> all = layers();
  all[2].dropped = other;
  EXPECT_LT(relative_error(adapted_linears(kDoublePolicy, x, all)[2], expected(all[2], x)), 1e-14);
  EXPECT_LT(gradient_error([&] { return weighted_sum(adapted_linears(kDoublePolicy, x, all)); },
                           {x, other, all[0].a, all[0].b, all[2].a, all[2].b}),
            1e-8);
}

TEST(AdaptedLinears, MayBeOverwritten) {
  for (const at::Tensor& x : {random_leaf({2, 3, 8}, 10), random_leaf({6, 8}, 10)}) {
    at::Tensor y = adapted_linears(kDoublePolicy, x, layers())[0];
    EXPECT_NO_THROW(y.relu_().sum().backward());
  }
}

TEST(AdaptedLinears, LearnFromSomeOfTheResults) {
  const at::Tensor x = frozen({5, 8}, 10);  // as in a first layer
  const std::vector<AdaptedLinear> all = layers();
  weighted_sum({adapted_linears(kDoublePolicy, x, all)[2]}).backward();
  EXPECT_FALSE(all[0].a.grad().defined());
  EXPECT_TRUE(all[2].a.grad().defined());
}

TEST(AdaptedLinears, Keep16BitWeightsAndMasterGradients) {
  const Policy policy = policy_of(Precision::bf16);
  for (const int64_t rows : {40, 80}) {  // of many rows, some CPUs compute products in fp32
    const at::Tensor x = random_leaf({rows, 8}, 10, at::kBFloat16);
    const at::Tensor wide_x = x.detach().to(at::kDouble).requires_grad_();
    const std::vector<AdaptedLinear> all = layers(at::kBFloat16, at::kFloat);
    const auto results = adapted_linears(policy, x, all);
    EXPECT_EQ(results[0].scalar_type(), at::kBFloat16);
    weighted_sum(results).backward();
    EXPECT_EQ(all[0].a.grad().scalar_type(), at::kFloat);
    std::vector<at::Tensor> wide_results;
    for (size_t i = 0; i < all.size(); ++i) {
      AdaptedLinear wide = all[i];
      for (at::Tensor* one : {&wide.bias, &wide.a, &wide.b})
        if (one->defined()) *one = one->detach().to(at::kDouble);
      wide_results.push_back(expected(wide, wide_x));
      EXPECT_LT(relative_error(results[i], wide_results[i]), 2e-2) << i;
    }
    weighted_sum(wide_results).backward();
    EXPECT_LT(relative_error(x.grad(), wide_x.grad()), 2e-2) << rows;
  }
}

TEST(FrozenLinear, HasTheResultsAndGradientOfADenseLayerInBf16) {
  const Policy policy = policy_of(Precision::bf16);
  for (const int64_t rows : {40, 80}) {
    const FrozenMatrix matrix = in_two_parts({6, 8}, 1, at::kBFloat16);
    const at::Tensor bias = frozen({6}, 2, at::kBFloat16), x = random_leaf({2, rows / 2, 8}, 3, at::kBFloat16);
    const at::Tensor y = frozen_linear(policy, x, matrix, bias);
    EXPECT_EQ(y.sizes(), at::IntArrayRef({2, rows / 2, 6}));
    weighted_sum({y}).backward();
    const at::Tensor wide_x = x.detach().to(at::kDouble).requires_grad_();
    const at::Tensor wide = at::matmul(wide_x, matrix.in(at::kDouble).t()) + bias.to(at::kDouble);
    weighted_sum({wide}).backward();
    EXPECT_LT(relative_error(y, wide), 1e-2) << rows;
    EXPECT_LT(relative_error(x.grad(), wide_x.grad()), 2e-2) << rows;
  }
}

TEST(FrozenLinear, ComputesInTheRowsTypeForTheMemoryOfGpus) {
  const Policy policy = policy_of(Precision::bf16);
  const FrozenMatrix matrix = in_two_parts({6, 8}, 1, at::kBFloat16);
  const at::Tensor x = frozen({80, 8}, 3, at::kBFloat16);
  const GpuMemoryScope as_on_gpus;
  EXPECT_TRUE(at::equal(frozen_linear(policy, x, matrix, {}), linear(policy, x, matrix.in(at::kBFloat16), {})));
  EXPECT_EQ(matrix.times_gradient(frozen({80, 6}, 4, at::kBFloat16)).scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace gputrain::ops
