#include <malloc.h>

#include <array>
#include <cmath>
#include <map>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/ops/activation.hpp"
#include "gputrain/ops/attention.hpp"
#include "gputrain/ops/linear.hpp"
#include "gputrain/ops/normalization.hpp"
#include "ops/compare.hpp"

namespace gputrain::ops {
namespace {

using testing_support::gradient_error;
using testing_support::random_leaf;
using testing_support::relative_error;

const Policy kDoublePolicy = policy_of(Precision::fp64);

/// A scalar that weights every element of `y` differently.
at::Tensor weighted_sum(const at::Tensor& y) {
  return (y * random_leaf(y.sizes(), 99, y.scalar_type()).detach()).sum();
}

TEST(LinearOp, MatchesProductPlusBiasInEitherLayout) {
  const at::Tensor x = random_leaf({2, 3, 4}, 1), weight = random_leaf({5, 4}, 2), bias = random_leaf({5}, 3);
  const at::Tensor expected = at::matmul(x, weight.t()) + bias;
  EXPECT_LT(relative_error(linear(kDoublePolicy, x, weight, bias), expected), 1e-14);
  EXPECT_LT(relative_error(linear_in_out(kDoublePolicy, x, weight.t().contiguous(), bias), expected), 1e-14);
  EXPECT_LT(relative_error(linear_in_out(kDoublePolicy, x, weight.t(), {}), expected - bias), 1e-14);
  EXPECT_LT(gradient_error([&] { return weighted_sum(linear(kDoublePolicy, x, weight, bias)); }, {x, weight, bias}),
            1e-8);
  const at::Tensor in_out = random_leaf({4, 5}, 4);
  EXPECT_LT(
      gradient_error([&] { return weighted_sum(linear_in_out(kDoublePolicy, x, in_out, bias)); }, {x, in_out, bias}),
      1e-8);
  EXPECT_FALSE(linear_in_out(kDoublePolicy, x, in_out, bias).is_view());  // an activation may overwrite it
}

TEST(FeedForwardOp, MatchesTwoDenseLayersWithActivation) {
  const at::Tensor x = random_leaf({2, 3, 4}, 1), bias_1 = random_leaf({6}, 3), bias_2 = random_leaf({5}, 5);
  for (const bool in_out : {false, true}) {
    const at::Tensor weight_1 = random_leaf({in_out ? 4 : 6, in_out ? 6 : 4}, 2);
    const at::Tensor weight_2 = random_leaf({in_out ? 6 : 5, in_out ? 5 : 6}, 4);
    const auto dense = in_out ? linear_in_out : linear;
    for (const Activation activation : {Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
      const auto y = [&] {
        return feed_forward(kDoublePolicy, x, {weight_1, bias_1, weight_2, bias_2, in_out, activation});
      };
      const at::Tensor inner = activate(dense(kDoublePolicy, x, weight_1, bias_1), activation);
      EXPECT_TRUE(y().equal(dense(kDoublePolicy, inner, weight_2, bias_2)));
      EXPECT_LT(gradient_error([&] { return weighted_sum(y()); }, {x, weight_1, bias_1, weight_2, bias_2}), 1e-7);
    }
  }
}

TEST(LinearOp, PadsResultWithZerosWithoutGradient) {
  const at::Tensor x = random_leaf({2, 3}, 1), weight = random_leaf({5, 3}, 2);
  const at::Tensor padded = linear_padded(kDoublePolicy, x, weight, {}, 8);
  EXPECT_EQ(padded.sizes(), (at::IntArrayRef{2, 8}));
  EXPECT_LT(relative_error(padded.narrow(1, 0, 5), linear(kDoublePolicy, x, weight, {})), 1e-14);
  EXPECT_EQ(padded.narrow(1, 5, 3).abs().max().item<double>(), 0);
  EXPECT_EQ(linear_padded(kDoublePolicy, x, weight, {}, 0).size(1), 5);
  const at::Tensor bias = random_leaf({5}, 3);
  const auto with_bias = [&] { return linear_padded(kDoublePolicy, x, weight, bias, 8); };
  EXPECT_LT(relative_error(with_bias().narrow(1, 0, 5), linear(kDoublePolicy, x, weight, bias)), 1e-14);
  EXPECT_EQ(with_bias().narrow(1, 5, 3).abs().max().item<double>(), 0);
  EXPECT_LT(gradient_error([&] { return weighted_sum(linear_padded(kDoublePolicy, x, weight, {}, 8)); }, {x, weight}),
            1e-8);
  EXPECT_LT(gradient_error([&] { return weighted_sum(with_bias()); }, {x, weight, bias}), 1e-8);
}

TEST(LinearOp, ReadsComputeTypeAndKeepsMasterGradient) {
  const Policy policy = policy_of(Precision::bf16);
  const at::Tensor x = random_leaf({8, 16}, 1, at::kFloat), weight = random_leaf({4, 16}, 2, at::kFloat);
  const at::Tensor y = linear(policy, x, weight, {});
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  const at::Tensor exact =
      at::matmul(x.to(at::kBFloat16).to(at::kDouble), weight.to(at::kBFloat16).to(at::kDouble).t());
  EXPECT_LT(relative_error(y, exact), 4e-3);
  y.sum().backward();
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
}

/// Every product with weights; those in the arena have a working copy.
struct Products {
  at::Tensor out_in = random_leaf({6, 8}, 1, at::kFloat), in_out = random_leaf({8, 6}, 2, at::kFloat);
  at::Tensor kernel = random_leaf({4, 3, 3, 3}, 3, at::kFloat), bias = random_leaf({6}, 4, at::kFloat);
  at::Tensor x = random_leaf({5, 8}, 5, at::kFloat), image = random_leaf({2, 3, 5, 5}, 6, at::kFloat);
  device::Arena arena;

  explicit Products(at::ScalarType type) : arena(arena_tensors(), {.working_type = type}) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& weight : {out_in, in_out, kernel, bias}) weight.normal_();
  }
  std::vector<device::ArenaTensor> arena_tensors() const {
    return {{"out_in", out_in}, {"in_out", in_out}, {"kernel", kernel}, {"bias", bias}};
  }
  std::vector<at::Tensor> results(const Policy& policy) const {
    return {
        linear(policy, x, out_in, bias),
        linear_in_out(policy, x, in_out, bias),
        linear_in_out(policy, x, in_out, {}),
        linear_padded(policy, x, out_in, {}, 8),
        linear_padded(policy, x, out_in, bias, 8),
        feed_forward(policy, x, {.weight_1 = out_in, .bias_1 = bias, .weight_2 = in_out, .bias_2 = {}}),
        feed_forward(policy, x, {.weight_1 = in_out, .bias_1 = bias, .weight_2 = out_in, .bias_2 = {}, .in_out = true}),
        conv2d(policy, image, kernel, {}, 1, 1)};
  }
};

TEST(Conv2dOp, MatchesExactResultIn16BitsWithRounding) {
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    const Policy policy = policy_of(precision);
    const at::Tensor x = random_leaf({2, 3, 6, 5}, 1, at::kFloat), weight = random_leaf({4, 3, 3, 3}, 2, at::kFloat),
                     bias = random_leaf({4}, 3, at::kFloat);
    const at::Tensor y = conv2d(policy, x, weight, bias, 1, 1);
    EXPECT_EQ(y.scalar_type(), policy.compute);
    y.sum(at::kFloat).backward();
    std::vector<at::Tensor> exact;
    for (const at::Tensor& leaf : {x, weight, bias}) {
      exact.push_back(leaf.detach().to(at::kDouble).set_requires_grad(true));
    }
    const at::Tensor expected = conv2d(kDoublePolicy, exact[0], exact[1], exact[2], 1, 1);
    expected.sum().backward();
    EXPECT_LT(relative_error(y, expected), 6e-3);
    EXPECT_LT(relative_error(x.grad(), exact[0].grad()), 6e-3);
    EXPECT_LT(relative_error(weight.grad(), exact[1].grad()), 6e-3);
    EXPECT_LT(relative_error(bias.grad(), exact[2].grad()), 6e-3);
  }
}

// For most of such a filter, oneDNN's bf16 wrote no gradient: training used uninitialised memory.
TEST(Conv2dOp, KeepsGradientFor16BitImagesBelowStride) {
  ::mallopt(M_PERTURB, 0x80);  // malloc() returns memory filled with 3e38
  for (const auto& [height, width, stride] : std::vector<std::array<int64_t, 3>>{{1, 1, 2}, {4, 1, 2}, {4, 2, 3}}) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const at::Tensor x = random_leaf({2, 16, height, width}, 1, at::kFloat).detach().contiguous(format);
      const at::Tensor weight = random_leaf({32, 16, 3, 3}, 2, at::kFloat).detach().contiguous(format);
      const at::Tensor exact_x = x.to(at::kDouble), exact_weight = weight.to(at::kDouble);
      for (const at::Tensor& leaf : {x, weight, exact_x, exact_weight}) leaf.set_requires_grad(true);
      conv2d(policy_of(Precision::bf16), x, weight, {}, stride, /*padding=*/1).sum(at::kFloat).backward();
      conv2d(kDoublePolicy, exact_x, exact_weight, {}, stride, /*padding=*/1).sum().backward();
      EXPECT_LT(relative_error(x.grad(), exact_x.grad()), 6e-3) << height << " x " << width;
      EXPECT_LT(relative_error(weight.grad(), exact_weight.grad()), 6e-3) << height << " x " << width;
    }
  }
  ::mallopt(M_PERTURB, 0);
}

TEST(WorkingCopies, MatchCastsBitForBit) {
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    const Policy policy = policy_of(precision);
    const Products products(policy.compute);
    const auto gradients = [&](const std::vector<at::Tensor>& results) {
      at::Tensor(products.arena.gradients()).zero_();
      for (const at::Tensor& y : results) weighted_sum(y).backward();
      products.arena.check_views();
      return products.arena.gradients().clone();
    };
    const std::vector<at::Tensor> cast = products.results(policy);
    const at::Tensor expected = gradients(cast);
    EXPECT_GT(expected.abs().sum().item<float>(), 0);
    const device::Reading reading(products.arena.working_copy());
    const std::vector<at::Tensor> copied = products.results(policy);
    for (size_t i = 0; i < cast.size(); ++i) EXPECT_TRUE(copied[i].equal(cast[i])) << i;
    EXPECT_TRUE(gradients(copied).equal(expected));
  }
}

TEST(WorkingCopies, AreReadInsteadOfWeights) {
  const Policy policy = policy_of(Precision::bf16);
  const Products products(policy.compute);
  for (const bool with_graph : {true, false}) {
    const device::Reading reading(products.arena.working_copy());
    const at::AutoGradMode grad(with_graph);
    at::Tensor(products.arena.working_copy()->tensor()).zero_();
    for (const at::Tensor& y : products.results(policy)) {
      EXPECT_EQ(y.abs().max().item<float>(), 0);
      EXPECT_EQ(y.requires_grad(), with_graph);
    }
  }
}

TEST(WorkingCopies, AreDetectedWhenRemadeBeforeBackward) {
  const Policy policy = policy_of(Precision::bf16);
  const Products products(policy.compute);
  at::Tensor y;
  {
    const device::Reading reading(products.arena.working_copy());
    y = linear(policy, products.x, products.out_in, {});
  }
  const device::Reading again(products.arena.working_copy());
  EXPECT_ANY_THROW(y.sum().backward());
}

TEST(CastOp, ReturnsSameTensorWithoutChange) {
  const at::Tensor x = random_leaf({2}, 1, at::kFloat);
  EXPECT_TRUE(cast(x, at::kFloat).is_same(x));
  EXPECT_FALSE(cast({}, at::kFloat).defined());
}

TEST(Conv2dOp, MatchesFiniteDifferencesInBothOrders) {
  const at::Tensor x = random_leaf({2, 2, 5, 5}, 1), weight = random_leaf({3, 2, 3, 3}, 2), bias = random_leaf({3}, 3);
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const auto y = [&] {
      return conv2d(kDoublePolicy, x.contiguous(format), weight.contiguous(format), bias, /*stride=*/2, /*padding=*/1);
    };
    EXPECT_EQ(y().sizes(), (at::IntArrayRef{2, 3, 3, 3}));
    EXPECT_TRUE(y().is_contiguous(format));
    EXPECT_LT(gradient_error([&] { return weighted_sum(y()); }, {x, weight, bias}), 1e-8);
  }
}

TEST(NormOp, NormalizesLayerToMeanZeroAndVarianceOne) {
  const at::Tensor x = random_leaf({4, 6}, 1), weight = random_leaf({6}, 2), bias = random_leaf({6}, 3);
  const at::Tensor centred = x - x.mean({-1}, true);
  const at::Tensor expected = centred / (centred.pow(2).mean({-1}, true) + 1e-5).sqrt() * weight + bias;
  EXPECT_LT(relative_error(layer_norm(x, weight, bias, 1e-5), expected), 1e-12);
  EXPECT_LT(gradient_error([&] { return weighted_sum(layer_norm(x, weight, bias, 1e-5)); }, {x, weight, bias}), 1e-7);
  EXPECT_LT(relative_error(layer_norm(x, weight, {}, 1e-5), expected - bias), 1e-12);
}

TEST(NormOp, DividesRmsNormByRootMeanSquare) {
  const at::Tensor x = random_leaf({4, 6}, 1), weight = random_leaf({6}, 2);
  const at::Tensor expected = x / (x.pow(2).mean({-1}, true) + 1e-5).sqrt() * weight;
  EXPECT_LT(relative_error(rms_norm(x, weight, 1e-5), expected), 1e-12);
  EXPECT_LT(gradient_error([&] { return weighted_sum(rms_norm(x, weight, 1e-5)); }, {x, weight}), 1e-7);
}

TEST(NormOp, Keeps16BitTypeWithFullPrecisionInside) {
  const at::Tensor weight = random_leaf({64}, 2, at::kFloat), bias = random_leaf({64}, 3, at::kFloat);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = (random_leaf({8, 64}, 1, at::kFloat).detach() + 30).to(type).set_requires_grad(true);
    const at::Tensor exact = layer_norm(x.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble), 1e-5);
    const at::Tensor y = layer_norm(x, weight, bias, 1e-5);
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_LT(relative_error(y, exact), 4e-3) << type;
    const at::Tensor root = rms_norm(x, weight, 1e-5);
    EXPECT_EQ(root.scalar_type(), type);
    EXPECT_LT(relative_error(root, rms_norm(x.to(at::kDouble), weight.to(at::kDouble), 1e-5)), 4e-3) << type;
    (y.sum() + root.sum()).backward();
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
    EXPECT_EQ(x.grad().scalar_type(), type);
  }
}

TEST(NormOp, UpdatesBatchStatisticsOnlyInTraining) {
  const at::Tensor x = random_leaf({4, 2, 3, 3}, 1), weight = random_leaf({2}, 2), bias = random_leaf({2}, 3);
  at::Tensor mean = at::zeros({2}, at::kDouble), variance = at::ones({2}, at::kDouble);
  batch_norm(x, weight, bias, mean, variance, {.training = true});
  const at::Tensor expected_mean = x.mean({0, 2, 3}) * 0.1;
  const at::Tensor expected_variance = x.var({0, 2, 3}, /*unbiased=*/true) * 0.1 + 0.9;
  EXPECT_LT(relative_error(mean, expected_mean), 1e-12);
  EXPECT_LT(relative_error(variance, expected_variance), 1e-12);

  const at::Tensor kept = mean.clone();
  const at::Tensor y = batch_norm(x, weight, bias, mean, variance, {.training = false});
  EXPECT_TRUE(mean.equal(kept));
  const auto per_channel = [](const at::Tensor& values) { return values.view({1, 2, 1, 1}); };
  const at::Tensor expected =
      (x - per_channel(mean)) / (per_channel(variance) + 1e-5).sqrt() * per_channel(weight) + per_channel(bias);
  EXPECT_LT(relative_error(y, expected), 1e-12);
}

TEST(AttentionOp, MatchesSoftmaxOfScaledProducts) {
  const at::Tensor q = random_leaf({2, 3, 5, 4}, 1), k = random_leaf({2, 3, 5, 4}, 2), v = random_leaf({2, 3, 5, 4}, 3);
  const at::Tensor past = at::ones({5, 5}, at::kDouble).tril().log();
  const at::Tensor weights = at::softmax(at::matmul(q, k.transpose(-1, -2)) / 2.0 + past, -1);
  EXPECT_LT(relative_error(attention(q, k, v, {}), at::matmul(weights, v)), 1e-12);
  EXPECT_LT(gradient_error([&] { return weighted_sum(attention(q, k, v, {})); }, {q, k, v}), 1e-7);
  EXPECT_LT(relative_error(attention(q, k, v, {.causal = true, .scale = 0.5}), at::matmul(weights, v)), 1e-12);
}

TEST(AttentionOp, SharesKeyHeadsAmongNeighbours) {
  const at::Tensor q = random_leaf({2, 6, 5, 4}, 1), k = random_leaf({2, 2, 5, 4}, 2), v = random_leaf({2, 2, 5, 4}, 3);
  const auto repeat = [](const at::Tensor& x) { return x.repeat_interleave(3, 1); };
  EXPECT_LT(relative_error(attention(q, k, v, {}), attention(q, repeat(k), repeat(v), {})), 1e-12);
  EXPECT_LT(gradient_error([&] { return weighted_sum(attention(q, k, v, {})); }, {q, k, v}), 1e-7);
}

TEST(AttentionOp, OnlyRoundsInHalfPrecision) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t positions : {63, 300}) {  // on both sides of the threshold for products in half precision
      std::vector<at::Tensor> halves, doubles;
      for (const uint64_t seed : {1U, 2U, 3U}) {
        halves.push_back(random_leaf({2, 3, positions, 8}, seed).detach().to(type).requires_grad_());
        doubles.push_back(halves.back().detach().to(at::kDouble).requires_grad_());
      }
      const at::Tensor y = attention(halves[0], halves[1], halves[2], {}),
                       exact = attention(doubles[0], doubles[1], doubles[2], {});
      EXPECT_EQ(y.scalar_type(), type);
      EXPECT_LT(relative_error(y.to(at::kDouble), exact), 3e-3);
      weighted_sum(y.to(at::kDouble)).backward();
      weighted_sum(exact).backward();
      for (size_t i = 0; i < halves.size(); ++i) {
        EXPECT_LT(relative_error(halves[i].grad().to(at::kDouble), doubles[i].grad()), 1e-2) << "input " << i;
      }
    }
  }
}

TEST(RotaryOp, TurnsPairsByThePositionAngle) {
  const at::Tensor x = random_leaf({2, 3, 7, 8}, 1);
  const RotaryTable table(16, 8, 100.0, at::kDouble);
  const at::Tensor y = rotate(x, table);
  for (int64_t position = 0; position < 7; ++position) {
    for (int64_t i = 0; i < 4; ++i) {
      const double angle = static_cast<double>(position) * std::pow(100.0, -static_cast<double>(i) / 4);
      const at::Tensor a = x.select(2, position).select(-1, i), b = x.select(2, position).select(-1, i + 4);
      const at::Tensor turned = y.select(2, position);
      EXPECT_LT(relative_error(turned.select(-1, i), a * std::cos(angle) - b * std::sin(angle)), 1e-6);
      EXPECT_LT(relative_error(turned.select(-1, i + 4), b * std::cos(angle) + a * std::sin(angle)), 1e-6);
    }
  }
}

// What transformers computes for Llama 3.1: frequencies by their index, in heads of 128 channels.
TEST(RotaryOp, ScalesFrequenciesOfLlama31) {
  const RotaryScaling scaling{.kind = RotaryScaling::Kind::llama3, .factor = 8, .original_positions = 8192};
  const RotaryTable table(1001, 128, 500000, at::kDouble, scaling);
  const std::map<int64_t, float> frequencies{{0, 1},
                                             {1, 0.8146172165870667F},
                                             {28, 0.0032114461064338684F},
                                             {29, 0.0021665706299245358F},
                                             {31, 0.0008567514596506953F},
                                             {34, 0.0001785077911335975F},
                                             {35, 9.556212171446532e-05F},
                                             {63, 3.068925877869333e-07F}};
  for (const auto& [i, frequency] : frequencies) {
    EXPECT_FLOAT_EQ(table.sine[1][i].item<float>(), std::sin(frequency)) << i;
    EXPECT_FLOAT_EQ(table.cosine[1000][i].item<float>(), std::cos(1000 * frequency)) << i;
  }
}

TEST(RotaryOp, DividesFrequenciesLinearly) {
  const RotaryTable plain(8, 16, 10000, at::kDouble);
  const RotaryTable table(8, 16, 10000, at::kDouble, {.kind = RotaryScaling::Kind::linear, .factor = 2});
  EXPECT_TRUE(table.sine[6].equal(plain.sine[3]));
}

TEST(RotaryOp, LeavesChannelsPastTheTable) {
  const RotaryTable table(8, 4, 10000.0, at::kDouble);
  const at::Tensor x = random_leaf({2, 3, 5, 7}, 1);
  const at::Tensor y = rotate(x, table);
  EXPECT_TRUE(y.narrow(-1, 0, 4).equal(rotate(x.narrow(-1, 0, 4), table)));
  EXPECT_TRUE(y.narrow(-1, 4, 3).equal(x.narrow(-1, 4, 3)));
  EXPECT_LT(gradient_error([&] { return weighted_sum(rotate(x, table)); }, {x}), 1e-8);
}

TEST(RotaryOp, MatchesFiniteDifferencesAndKeepsOrder) {
  const RotaryTable table(8, 4, 10000.0, at::kDouble);
  const at::Tensor x = random_leaf({2, 5, 3, 4}, 1);
  EXPECT_LT(gradient_error([&] { return weighted_sum(rotate(x.transpose(1, 2), table)); }, {x}), 1e-8);
  EXPECT_EQ(rotate(x.transpose(1, 2), table).strides(), x.transpose(1, 2).strides());
}

TEST(RotaryOp, ComputesInTableTypeFor16BitHeads) {
  const RotaryTable table(64, 16, 10000.0, at::kFloat);
  const at::Tensor x = random_leaf({2, 3, 64, 16}, 1, at::kBFloat16);
  const at::Tensor y = rotate(x, table);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_LT(relative_error(y, rotate(x.to(at::kFloat), table)), 3e-3);  // rounded once
}

TEST(ActivationOp, MatchesFiniteDifferencesForEveryName) {
  const at::Tensor x = random_leaf({5, 3}, 1), gate = random_leaf({5, 3}, 2);
  for (const std::string& name : activation_names()) {
    const auto sum = [&] { return weighted_sum(activate(x * 1.0, activation_from_name(name))); };
    EXPECT_LT(gradient_error(sum, {x}), 1e-7) << name;
  }
  EXPECT_LT(gradient_error([&] { return weighted_sum(swiglu(gate, x)); }, {x, gate}), 1e-7);
  EXPECT_LT(relative_error(swiglu(gate, x), gate * gate.sigmoid() * x), 1e-12);
  EXPECT_THROW(activation_from_name("rleu"), Error);
}

TEST(ActivationOp, SeparatesExactGeluFromApproximation) {
  const at::Tensor x = at::full({1}, 2.0, at::kDouble);
  EXPECT_NEAR(activate(x, Activation::gelu).item<double>(), 2 * 0.5 * (1 + std::erf(2 / std::sqrt(2.0))), 1e-12);
  const double inner = std::sqrt(2 / 3.14159265358979323846) * (2 + 0.044715 * 8);
  EXPECT_NEAR(activate(x, Activation::gelu_tanh).item<double>(), 1 + std::tanh(inner), 1e-12);
}

TEST(DropoutOp, KeepsMeanAndDropsAskedShare) {
  const at::Tensor y = dropout(at::ones({100000}), 0.25);
  EXPECT_NEAR((y == 0).sum().item<double>() / 1e5, 0.25, 0.01);
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.01);
}

TEST(PoolingOp, TakesMaximumOrMeanOfAnImage) {
  const at::Tensor x = random_leaf({2, 3, 4, 6}, 1);
  EXPECT_TRUE(global_max_pool(x).equal(x.flatten(2).amax({-1})));
  EXPECT_LT(relative_error(global_average_pool(x), x.mean({2, 3})), 1e-14);
  EXPECT_EQ(max_pool2d(x, 2, 2).sizes(), (at::IntArrayRef{2, 3, 2, 3}));
  EXPECT_LT(gradient_error([&] { return weighted_sum(global_max_pool(x)); }, {x}), 1e-8);
}

}  // namespace
}  // namespace gputrain::ops
