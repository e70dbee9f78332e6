// A mixture of experts in blocks of rows, as on a GPU, against the experts one by one.
#include "gputrain/nn/experts.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/device/arena.hpp"
#include "gputrain/nn/packing.hpp"
#include "gputrain/ops/grouped_linear.hpp"
#include "ops/compare.hpp"

namespace gputrain::nn {
namespace {

using testing_support::gradient_error;
using testing_support::random_leaf;
using testing_support::relative_error;

constexpr int64_t kChannels = 12, kInner = 8;

/// A scalar that weights every element of `y` differently.
at::Tensor weighted_sum(const at::Tensor& y) {
  return (y * random_leaf(y.sizes(), 99, y.scalar_type()).detach()).sum();
}

at::Tensor numbers(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

TEST(RowBlocks, KeepOneGroupEachAndGiveRowsBackInOrder) {
  const std::vector<std::vector<int64_t>> cases{
      {0}, {3}, {2, 2, 2, 2}, {0, 1, 2, 3}, {3, 0, 3, 1, 0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}};
  for (const auto& groups : cases) {
    const ops::RowBlocks blocks(numbers(groups), 4);
    const auto rows = std::ssize(groups);
    const at::Tensor x = at::arange(1, rows + 1, at::kDouble).unsqueeze(1);
    const at::Tensor arranged = blocks.arranged(x);
    EXPECT_TRUE(blocks.in_order(arranged).equal(x));
    EXPECT_EQ(arranged.sum().item<double>(), x.sum().item<double>()) << "the rest is zeros";
    for (int64_t block = 0; block < arranged.size(0); ++block)
      for (int64_t row = 0; row < arranged.size(1); ++row) {
        const auto number = arranged[block][row][0].item<int64_t>();
        if (number == 0) continue;
        EXPECT_EQ(blocks.groups()[block].item<int64_t>(), groups.at(static_cast<size_t>(number - 1)));
      }
  }
}

/// Sizes may depend on the number of rows alone: a recorded step is replayed for other groups.
TEST(RowBlocks, HaveSizesThatGroupsDoNotChange) {
  for (const int64_t rows : {1, 17, 200, 1000}) {
    const ops::RowBlocks first(at::zeros({rows}, at::kLong), 8), second(at::arange(rows, at::kLong).remainder(8), 8);
    const at::Tensor x = at::ones({rows, 1});
    EXPECT_EQ(first.arranged(x).sizes(), second.arranged(x).sizes());
    EXPECT_EQ(first.groups().sizes(), second.groups().sizes());
  }
}

struct Mixture {
  Experts experts;
  std::map<std::string, at::Tensor> values;
  std::unique_ptr<device::Arena> arena;

  Mixture(ops::Precision precision, const FeedForward::Options& expert, int64_t count)
      : experts({.policy = ops::policy_of(precision)}, {.expert = expert, .count = count, .per_token = 2}) {
    std::vector<device::ArenaTensor> tensors;
    experts.each_parameter([&](const std::string& name, Parameter& one) {
      tensors.push_back({name, one.value});
      values[name] = one.value;
    });
    const ops::Policy policy = ops::policy_of(precision);
    device::ArenaOptions options;
    if (policy.compute != policy.master) options.working_type = policy.compute;
    arena = std::make_unique<device::Arena>(tensors, options);
    initialize(experts, 1);
  }

  /// The result and all gradients, by name; `in_blocks` or expert by expert.
  std::map<std::string, at::Tensor> results(const at::Tensor& x, const at::Tensor& chosen, bool in_blocks) {
    const device::Reading reading(arena->working_copy());
    for (auto& [name, value] : values) value.mutable_grad().zero_();
    x.mutable_grad() = at::Tensor();
    const at::Tensor y = in_blocks ? experts.in_blocks(x, chosen) : experts.one_by_one(x, chosen);
    weighted_sum(y).backward();
    std::map<std::string, at::Tensor> found{{"y", y.detach().clone()}, {"x", x.grad().clone()}};
    for (const auto& [name, value] : values) found[name] = value.grad().clone();
    return found;
  }
};

FeedForward::Options gated(Naming naming = Naming::llama) {
  return {.naming = naming,
          .channels = kChannels,
          .inner = kInner,
          .gated = true,
          .activation = ops::Activation::silu,
          .bias = false};
}

void expect_equal(const std::map<std::string, at::Tensor>& blocks, const std::map<std::string, at::Tensor>& alone,
                  double most) {
  for (const auto& [name, value] : alone) {
    const bool is_zero = value.abs().max().item<double>() == 0;
    EXPECT_LE(is_zero ? blocks.at(name).abs().max().item<double>() : relative_error(blocks.at(name), value), most)
        << name;
  }
}

TEST(ExpertsInBlocks, GiveTheResultsAndGradientsOfExpertsOneByOne) {
  for (const auto& expert : {gated(), gated(Naming::phi3)}) {
    for (const int64_t rows : {1, 7, 300}) {
      Mixture mixture(ops::Precision::fp64, expert, /*count=*/5);
      const at::Tensor x = random_leaf({rows, kChannels}, 1), chosen = at::arange(rows, at::kLong).mul(7).remainder(4);
      const auto alone = mixture.results(x, chosen, false);  // expert 4 gets no rows
      expect_equal(mixture.results(x, chosen, true), alone, 1e-12);
    }
  }
}

TEST(ExpertsInBlocks, ReadTheWorkingCopyAndKeepMasterGradients) {
  Mixture mixture(ops::Precision::bf16, gated(), /*count=*/5);
  const at::Tensor x = random_leaf({300, kChannels}, 1, at::kBFloat16),
                   chosen = at::arange(300, at::kLong).mul(7).remainder(4);
  const auto alone = mixture.results(x, chosen, false), blocks = mixture.results(x, chosen, true);
  expect_equal(blocks, alone, 1e-2);
  EXPECT_EQ(mixture.values.at("experts.0.up_proj.weight").grad().scalar_type(), at::kFloat);
}

TEST(ExpertsInBlocks, LeaveOutGradientsOfFrozenExperts) {
  Mixture mixture(ops::Precision::fp64, gated(), /*count=*/3);
  for (auto& [name, value] : mixture.values) {
    value.mutable_grad() = at::Tensor();
    value.set_requires_grad(false);
  }
  const at::Tensor x = random_leaf({9, kChannels}, 1), chosen = at::arange(9, at::kLong).remainder(3);
  EXPECT_LT(gradient_error([&] { return weighted_sum(mixture.experts.in_blocks(x, chosen)); }, {x}), 1e-7);
  EXPECT_FALSE(mixture.values.at("experts.0.up_proj.weight").grad().defined());
}

// In fp64 a packed weight is read as exactly as in fp32.
TEST(ExpertsInBlocks, ReadPackedWeights) {
  Experts experts({.policy = ops::policy_of(ops::Precision::fp64)}, {.expert = gated(), .count = 5, .per_token = 2});
  initialize(experts, 1);
  const std::shared_ptr<const Packing> nf4 = packings().make(packings().with_defaults("nf4"));
  experts.each_module([&](const std::string& name, Module& module) {
    auto* const layer = dynamic_cast<Linear*>(&module);
    if (layer == nullptr || !name.starts_with("experts.")) return;
    const at::Tensor weight = layer->matrix(at::kFloat);
    layer->pack(nf4, at::kFloat);
    layer->packed().fill(weight);
  });
  const at::Tensor x = random_leaf({300, kChannels}, 1), chosen = at::arange(300, at::kLong).mul(7).remainder(4);
  const auto result = [&](bool in_blocks) {
    x.mutable_grad() = at::Tensor();
    const at::Tensor y = in_blocks ? experts.in_blocks(x, chosen) : experts.one_by_one(x, chosen);
    weighted_sum(y).backward();
    return std::map<std::string, at::Tensor>{{"y", y.detach()}, {"x", x.grad().clone()}};
  };
  expect_equal(result(true), result(false), 1e-12);
}

TEST(ExpertsInBlocks, NeedWeightsAtEqualDistances) {
  const at::Tensor flat = at::zeros({3, 4, 5});
  const ops::Policy policy = ops::policy_of(ops::Precision::fp32);
  EXPECT_TRUE(ops::lie_evenly(policy, {flat[0], flat[1], flat[2]}));
  EXPECT_TRUE(ops::lie_evenly(policy, {flat[1]}));
  EXPECT_FALSE(ops::lie_evenly(policy, {flat[0], flat[2], flat[1]}));
  EXPECT_FALSE(ops::lie_evenly(policy, {flat[0], at::zeros({4, 5})}));
  EXPECT_FALSE(ops::lie_evenly(policy, {flat[0].t(), flat[1].t()}));
}

/// That they equal transformers' is shown together with its models.
TEST(RouterLossesTest, LeaveOutPadding) {
  const at::Tensor first = random_leaf({6, 4}, 1), second = random_leaf({6, 4}, 2);
  const at::Tensor counted = at::arange(6, at::kLong).lt(4);
  const std::vector<at::Tensor> whole{first, second}, cut{first.narrow(0, 0, 4), second.narrow(0, 0, 4)};
  EXPECT_LT(relative_error(RouterLosses::balance(whole, 2, counted), RouterLosses::balance(cut, 2, {})), 1e-12);
  EXPECT_LT(relative_error(RouterLosses::z(whole, counted), RouterLosses::z(cut, {})), 1e-12);
  EXPECT_LT(gradient_error([&] { return RouterLosses::balance(whole, 2, counted); }, {first, second}), 1e-6);
  EXPECT_LT(gradient_error([&] { return RouterLosses::z(whole, counted); }, {first, second}), 1e-6);
}

/// Tokens that are spread evenly cost as many units as each token has experts.
TEST(RouterLossesTest, AreLeastForAnEvenSpread) {
  const at::Tensor even = at::eye(4, at::kDouble) * 50, all_to_one = at::zeros({4, 4}, at::kDouble);
  EXPECT_NEAR(RouterLosses::balance({even}, 1, {}).item<double>(), 1, 1e-9);
  all_to_one.select(1, 2).fill_(50);
  EXPECT_NEAR(RouterLosses::balance({all_to_one}, 1, {}).item<double>(), 4, 1e-9);
  EXPECT_NEAR(RouterLosses::z({all_to_one}, {}).item<double>(), 2500, 1e-9);
}

}  // namespace
}  // namespace gputrain::nn
