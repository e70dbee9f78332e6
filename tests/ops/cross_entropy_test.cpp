#include "gputrain/ops/cross_entropy.hpp"

#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "gputrain/data/batch.hpp"
#include "ops/compare.hpp"

namespace gputrain::ops {
namespace {

using testing_support::gradient_error;
using testing_support::random_leaf;
using testing_support::relative_error;

/// PyTorch's own loss, in fp64.
at::Tensor reference_loss(const at::Tensor& logits, const at::Tensor& targets, double smoothing) {
  return at::cross_entropy_loss(logits.to(at::kDouble), targets, {}, at::Reduction::Sum, kIgnoreIndex, smoothing);
}

at::Tensor targets_of(std::initializer_list<int64_t> values) { return at::tensor(values, at::kLong); }

/// Logits that may be overwritten: the result of an operation, as in a model.
at::Tensor handed_over(const at::Tensor& leaf) { return at::mul(leaf, 1); }

struct Comparison {
  double loss, gradient;  // relative to PyTorch in fp64
};

/// Applies one part of the weight inside the loss, the other after it.
Comparison against_pytorch(const at::Tensor& logits, const at::Tensor& targets, double smoothing, double weight) {
  const at::Tensor ours = logits.detach().clone().set_requires_grad(true);
  const at::Tensor theirs = logits.detach().to(at::kDouble, false, true).set_requires_grad(true);
  const Loss loss = cross_entropy(
      handed_over(ours), targets,
      {.classes = logits.size(-1), .label_smoothing = smoothing, .weight = at::full({}, weight, at::kDouble)});
  const at::Tensor expected = reference_loss(theirs, targets, smoothing);
  at::mul(loss.weighted, 3).backward();
  at::mul(expected, 3 * weight).backward();
  EXPECT_LT(relative_error(loss.weighted, at::mul(expected, weight)), 1e-6);
  return {relative_error(loss.sum, expected), relative_error(ours.grad(), theirs.grad())};
}

at::Tensor targets_with_gaps(int64_t rows, int64_t classes) {
  at::Tensor targets = at::randint(classes, {rows}, at::TensorOptions().dtype(at::kLong));
  targets.narrow(0, rows / 2, rows / 4).fill_(kIgnoreIndex);
  return targets;
}

TEST(CrossEntropy, MatchesPyTorchInLossAndGradient) {
  for (const double smoothing : {0.0, 0.1, 1.0}) {
    const auto error = against_pytorch(random_leaf({40, 7}, 1), targets_with_gaps(40, 7), smoothing, 0.3);
    EXPECT_LT(error.loss, 1e-12) << smoothing;
    EXPECT_LT(error.gradient, 1e-12) << smoothing;
  }
}

TEST(CrossEntropy, MatchesPyTorchOverManyChunks) {
  // 300 rows of 4,099 columns are five chunks; the last one is smaller.
  const auto error = against_pytorch(random_leaf({300, 4099}, 2, at::kFloat), targets_with_gaps(300, 4099), 0.1, 2.0);
  EXPECT_LT(error.loss, 1e-6);
  EXPECT_LT(error.gradient, 1e-6);
}

TEST(CrossEntropy, Computes16BitLogitsInSinglePrecision) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const auto error = against_pytorch(random_leaf({64, 100}, 3, type), targets_with_gaps(64, 100), 0.1, 1.0);
    EXPECT_LT(error.loss, 1e-6) << type;      // both sides read the same 16-bit logits
    EXPECT_LT(error.gradient, 4e-3) << type;  // the gradient is stored in 16 bits
  }
}

TEST(CrossEntropy, MatchesClosedFormForSmoothedTarget) {
  const at::Tensor logits = at::tensor(at::ArrayRef<double>{1.0, 2.0, 4.0}, at::kDouble).view({1, 3});
  const double lse = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(4.0));
  const double expected = 0.8 * (lse - 2.0) + 0.2 / 3 * (3 * lse - 7.0);
  const auto loss = cross_entropy(logits, targets_of({1}), {3, 0.2}).sum;
  EXPECT_NEAR(loss.item<double>(), expected, 1e-12);
}

TEST(CrossEntropy, MatchesFiniteDifferences) {
  const at::Tensor logits = random_leaf({3, 2, 5}, 4);
  const at::Tensor targets = targets_of({0, 4, kIgnoreIndex, 2, 1, 3}).view({3, 2});
  const auto loss = [&] { return cross_entropy(handed_over(logits), targets, {5, 0.1}).weighted; };
  EXPECT_LT(gradient_error(loss, {logits}), 1e-8);
}

TEST(CrossEntropy, IgnoresColumnsPastTheClasses) {
  const at::Tensor logits = random_leaf({6, 8}, 5), targets = targets_of({0, 1, 2, 3, 4, kIgnoreIndex});
  const at::Tensor classes = logits.detach().narrow(1, 0, 5).clone().set_requires_grad(true);
  const at::Tensor loss = cross_entropy(handed_over(logits), targets, {5, 0.1}).weighted;
  const at::Tensor expected = reference_loss(classes, targets, 0.1);
  loss.backward();
  expected.backward();
  EXPECT_LT(relative_error(loss, expected), 1e-12);
  EXPECT_LT(relative_error(logits.grad(), at::constant_pad_nd(classes.grad(), {0, 3})), 1e-12);
}

TEST(CrossEntropy, IsZeroWithoutCountedTargets) {
  const at::Tensor logits = random_leaf({4, 3}, 6);
  const at::Tensor loss = cross_entropy(handed_over(logits), at::full({4}, kIgnoreIndex, at::kLong), {3}).weighted;
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_EQ(logits.grad().abs().max().item<double>(), 0);
}

TEST(CrossEntropy, WritesGradientOverTheLogits) {
  const at::Tensor leaf = random_leaf({4, 3}, 7), logits = handed_over(leaf);
  const at::Tensor loss = cross_entropy(logits, at::zeros({4}, at::kLong), {3}).weighted;
  const at::Tensor gradient = logits.detach().clone();
  loss.backward();
  EXPECT_TRUE(gradient.equal(leaf.grad()));
}

TEST(CrossEntropy, KeepsLogitsWithoutGradient) {
  const at::Tensor leaf = random_leaf({4, 3}, 7), targets = at::zeros({4}, at::kLong);
  const at::Tensor logits = handed_over(leaf), copy = leaf.detach().clone();
  const double learning = cross_entropy(handed_over(leaf), targets, {3}).sum.item<double>();
  const at::NoGradGuard no_grad;
  EXPECT_EQ(cross_entropy(logits, targets, {3}).sum.item<double>(), learning);
  EXPECT_EQ(cross_entropy(copy, targets, {3}).sum.item<double>(), learning);
  EXPECT_TRUE(logits.equal(copy));
}

TEST(CrossEntropy, RefusesSecondBackward) {
  const at::Tensor leaf = random_leaf({4, 3}, 8);
  const at::Tensor loss = cross_entropy(handed_over(leaf), at::zeros({4}, at::kLong), {3}).weighted;
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_ANY_THROW(loss.backward());
}

TEST(CrossEntropy, NamesTargetOutsideTheClasses) {
  for (const int64_t wrong : {int64_t{3}, int64_t{-1}}) {
    try {
      cross_entropy(random_leaf({2, 3}, 9), targets_of({0, wrong}), {3});
      FAIL() << "accepted " << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_THAT(error.what(), testing::HasSubstr("target " + std::to_string(wrong)));
    }
  }
}

TEST(LogProbs, MatchPyTorchInValueAndGradient) {
  const at::Tensor logits = random_leaf({40, 9}, 10), theirs = logits.detach().clone().set_requires_grad(true);
  const at::Tensor targets = targets_with_gaps(40, 7), weights = random_leaf({40}, 11).detach();
  const at::Tensor found = log_probs(handed_over(logits), targets, 7);
  const at::Tensor expected =
      at::cross_entropy_loss(theirs.narrow(1, 0, 7), targets, {}, at::Reduction::None, kIgnoreIndex).neg();
  at::mul(found, weights).sum().backward();
  at::mul(expected, weights).sum().backward();
  EXPECT_LT(relative_error(found, expected), 1e-12);
  EXPECT_LT(relative_error(logits.grad(), theirs.grad()), 1e-12);
}

}  // namespace
}  // namespace gputrain::ops
