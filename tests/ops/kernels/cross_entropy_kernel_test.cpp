#include "../../../src/ops/cuda/kernels/cross_entropy.hpp"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/kernels/kernel_case.hpp"

namespace gputrain::ops::cuda {
namespace {

using namespace testing_support;

constexpr int64_t kIgnored = -100;

struct LossCase {
  int64_t rows, classes, columns;
  double smoothing = 0;
  double spread = 3;  // of the logits
};

struct LossTensors {
  at::Tensor logits, targets, loss, gradient, total;
  std::vector<at::Tensor> results() const { return {loss, gradient, total}; }
};

CrossEntropyRows rows_of(const LossCase& c, const Storage& storage, const LossTensors& t, const double* weight) {
  return {.element = storage.element,
          .rows = c.rows,
          .columns = c.columns,
          .classes = c.classes,
          .ignored = kIgnored,
          .smoothing = static_cast<float>(c.smoothing),
          .logits = pointer(t.gradient),
          .targets = pointer<int64_t>(t.targets),
          .loss = pointer<float>(t.loss),
          .weight = weight};
}

constexpr double kWeight = 0.37;

/// Logits, targets and memory for results; every third row is ignored.
LossTensors tensors_of(const LossCase& c, const Storage& storage) {
  LossTensors t{.logits = noise({c.rows, c.columns}, 1, at::kFloat).mul(c.spread).to(storage.type),
                .targets = at::empty({c.rows}, at::kLong),
                .loss = poisoned({c.rows}, at::kFloat),
                .total = poisoned({1}, at::kDouble)};
  for (int64_t i = 0; i < c.rows; ++i) {
    t.targets.mutable_data_ptr<int64_t>()[i] = i % 3 == 2 ? kIgnored : (i * 7919 + c.classes - 1) % c.classes;
  }
  // Padding columns must not be read.
  if (c.columns > c.classes) t.logits.narrow(1, c.classes, c.columns - c.classes).fill_(std::nan(""));
  t.gradient = t.logits.clone();
  return t;
}

LossTensors run(const LossCase& c, const Storage& storage, const double* weight) {
  LossTensors t = tensors_of(c, storage);
  const CrossEntropyRows p = rows_of(c, storage, t, weight);
  cross_entropy(p, nullptr);
  total(p.loss, c.rows, pointer<double>(t.total), nullptr);
  return t;
}

void check(const LossCase& c) {
  for (const Storage& storage : storages()) {
    const std::string place = std::string(storage.name) + " " + std::to_string(c.columns);
    const LossTensors t = run(c, storage, &kWeight);
    const at::Tensor leaf = wide_leaf(t.logits.narrow(1, 0, c.classes));
    const at::Tensor loss = at::cross_entropy_loss(leaf, t.targets, {}, at::Reduction::Sum, kIgnored, c.smoothing);
    (loss * kWeight).backward();
    expect_within(1e-6, t.total, loss.view({1}), place + " loss");
    expect_close(t.gradient, at::constant_pad_nd(leaf.grad(), {0, c.columns - c.classes}), place + " gradient");
    expect_same_bits(t.results(), run(c, storage, &kWeight).results());
    const LossTensors read = run(c, storage, nullptr);
    expect_same_bits({t.loss, t.total, t.logits}, {read.loss, read.total, read.gradient});
  }
}

TEST(CrossEntropyKernels, MatchReferenceForAnyClassCount) {
  check({.rows = 7, .classes = 13, .columns = 13});
  check({.rows = 4, .classes = 1000, .columns = 1000});
  check({.rows = 2, .classes = 1, .columns = 1});
}

TEST(CrossEntropyKernels, IgnorePaddedColumns) {
  check({.rows = 2, .classes = 50257, .columns = 50304});
  check({.rows = 1, .classes = 50257, .columns = 50257});
  check({.rows = 4, .classes = 5, .columns = 64});
}

TEST(CrossEntropyKernels, SmoothLabels) {
  check({.rows = 5, .classes = 100, .columns = 104, .smoothing = 0.1});
  check({.rows = 5, .classes = 33, .columns = 33, .smoothing = 1});
}

TEST(CrossEntropyKernels, HandleLogitsFarApart) { check({.rows = 6, .classes = 40, .columns = 40, .spread = 200}); }

TEST(CrossEntropyKernels, IgnoreLogitOfMinusInfinity) {
  const LossCase c{.rows = 1, .classes = 3, .columns = 3};
  LossTensors t = tensors_of(c, storages()[0]);
  t.gradient.select(1, 0).fill_(-INFINITY);
  t.gradient.select(1, 1).fill_(1.0);
  t.gradient.select(1, 2).fill_(1.0);
  cross_entropy(rows_of(c, storages()[0], t, &kWeight), nullptr);
  EXPECT_NEAR(t.loss.item<float>(), std::log(2.0), 1e-6);
  EXPECT_EQ(t.gradient[0][0].item<float>(), 0);
}

TEST(CrossEntropyKernels, PassNanOn) {
  const LossCase c{.rows = 1, .classes = 40, .columns = 40};
  LossTensors t = tensors_of(c, storages()[0]);
  t.gradient[0][33].fill_(std::nan(""));
  cross_entropy(rows_of(c, storages()[0], t, &kWeight), nullptr);
  EXPECT_TRUE(std::isnan(t.loss.item<float>()));
}

/// The losses first, then the gradient for a weight of each row.
LossTensors run_twice(const LossCase& c, const Storage& storage, const at::Tensor& weights) {
  LossTensors t = tensors_of(c, storage);
  const at::Tensor lse = poisoned({c.rows}, at::kFloat);
  CrossEntropyRows p = rows_of(c, storage, t, nullptr);
  p.lse = pointer<float>(lse);
  cross_entropy(p, nullptr);
  total(p.loss, c.rows, pointer<double>(t.total), nullptr);
  expect_same_bits({t.gradient}, {t.logits});
  p.weight = pointer<double>(weights);
  p.loss = nullptr;
  cross_entropy(p, nullptr);
  return t;
}

TEST(CrossEntropyKernels, WeighEachRowInSecondPass) {
  for (const Storage& storage : storages()) {
    for (const LossCase& c :
         {LossCase{.rows = 7, .classes = 13, .columns = 13}, LossCase{.rows = 4, .classes = 1000, .columns = 1003},
          LossCase{.rows = 5, .classes = 5, .columns = 64, .smoothing = 0.1},
          LossCase{.rows = 6, .classes = 40, .columns = 40, .spread = 200},
          LossCase{.rows = 2, .classes = 50257, .columns = 50304}}) {
      const std::string place = std::string(storage.name) + " " + std::to_string(c.columns);
      const at::Tensor weights = noise({c.rows}, 2, at::kDouble);
      const LossTensors t = run_twice(c, storage, weights);
      const at::Tensor leaf = wide_leaf(t.logits.narrow(1, 0, c.classes));
      const at::Tensor losses = at::cross_entropy_loss(leaf, t.targets, {}, at::Reduction::None, kIgnored, c.smoothing);
      (losses * weights).sum().backward();
      expect_close(t.loss, losses, place + " losses");
      expect_close(t.gradient, at::constant_pad_nd(leaf.grad(), {0, c.columns - c.classes}), place + " gradient");
      expect_same_bits(t.results(), run_twice(c, storage, weights).results());
    }
  }
}

TEST(CrossEntropyKernels, ScaleLogits) {
  for (const Storage& storage : storages()) {
    for (const double factor : {1.0, -2.5}) {
      const LossCase c{.rows = 3, .classes = 1000, .columns = 1003};
      const LossTensors t = run(c, storage, &kWeight);
      const at::Tensor expected = t.gradient.mul(factor);
      scale_logits(rows_of(c, storage, t, &factor), nullptr);
      expect_same_bits({t.gradient}, {expected});
    }
  }
}

TEST(CrossEntropyKernels, GiveNanForInvalidTarget) {
  const LossCase c{.rows = 1, .classes = 3, .columns = 8};
  for (const int64_t target : {int64_t{3}, int64_t{-1}, int64_t{1} << 40}) {
    LossTensors t = tensors_of(c, storages()[0]);
    t.targets.fill_(target);
    cross_entropy(rows_of(c, storages()[0], t, &kWeight), nullptr);
    EXPECT_TRUE(std::isnan(t.loss.item<float>())) << target;
    EXPECT_TRUE(std::isnan(t.gradient[0][0].item<float>())) << "the update is skipped and told";
  }
}

}  // namespace
}  // namespace gputrain::ops::cuda
