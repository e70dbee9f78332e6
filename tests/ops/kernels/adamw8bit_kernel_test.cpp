#include "../../../src/ops/cuda/kernels/adamw8bit.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "gputrain/ops/blockwise_update.hpp"
#include "gputrain/ops/stochastic_rounding.hpp"
#include "ops/kernels/kernel_case.hpp"

namespace gputrain::ops::cuda {
namespace {

using namespace testing_support;

constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8, kLr = 0.01;
constexpr int kSteps = 3;

at::Tensor scalar(double value) { return at::full({1}, value, at::kFloat); }

int64_t scales_of(int64_t numel) { return (numel + kScaled - 1) / kScaled; }

/// A tensor, some of its gradients zero, and its averages, which begin at 0.
struct One {
  int64_t numel;
  bool is_narrow;
  double decay, lr_factor, since;
  at::Tensor value, gradient, working, first, second, first_scales, second_scales;

  One(int64_t size, bool narrow, double of_decay = 0, double factor = 1, double updates_before = 0)
      : numel(size), is_narrow(narrow), decay(of_decay), lr_factor(factor), since(updates_before) {
    value = noise({size}, 1, at::kFloat);
    gradient = noise({size}, 2, at::kFloat);
    gradient.masked_fill_(gradient.lt(-1.5), 0);
    working = poisoned({size}, at::kBFloat16);
    for (at::Tensor* numbers : {&first, &second}) *numbers = at::zeros({size}, narrow ? at::kByte : at::kFloat);
    if (!narrow) return;
    first.fill_(127);  // 0 of the signed tree
    for (at::Tensor* scales : {&first_scales, &second_scales}) *scales = at::zeros({scales_of(size)}, at::kFloat);
  }
  UpdatedTensor entry(int64_t first_block) const {
    return {.value = pointer(value),
            .gradient = pointer(gradient),
            .working = value.scalar_type() == at::kFloat ? pointer(working) : nullptr,
            .first = {pointer(first), pointer<float>(first_scales)},
            .second = {pointer(second), pointer<float>(second_scales)},
            .numel = numel,
            .first_block = first_block,
            .decay = static_cast<float>(decay),
            .lr_factor = static_cast<float>(lr_factor),
            .since = static_cast<float>(since),
            .key = key()};
  }
  uint64_t key() const { return 0x9e3779b97f4a7c15 * static_cast<uint64_t>(numel); }
  std::vector<at::Tensor> state() const {
    std::vector<at::Tensor> all{value, working, first, second};
    if (is_narrow) all.insert(all.end(), {first_scales, second_scales});
    return all;
  }
};

std::vector<One> tensors() {
  return {One(5000, true, 0.1), One(1, true), One(300, false, 0.1, 0.5), One(256 * 17, true, 0, 2, -2),
          One(700, true)};
}

std::vector<float> trees() {
  std::vector<float> both;
  for (const bool is_signed : {true, false})
    for (const double value : dynamic_tree(is_signed)) both.push_back(static_cast<float>(value));
  return both;
}

void update(const std::vector<One>& all, int step, double found_inf = 0) {
  std::vector<UpdatedTensor> table;
  int64_t blocks = 0;
  for (const One& one : all) {
    table.push_back(one.entry(blocks));
    blocks += grid_blocks_of(one.numel);
  }
  const std::vector<float> both = trees();
  const at::Tensor lr = scalar(kLr), divisor = scalar(2), inf = scalar(found_inf), count = scalar(step);
  adamw8bit({.tensors = table.data(),
             .count = static_cast<int>(table.size()),
             .blocks = blocks,
             .element = all.front().value.scalar_type() == at::kFloat ? Element::fp32 : Element::bf16,
             .working_element = Element::bf16,
             .trees = both.data(),
             .lr = pointer<float>(lr),
             .divisor = pointer<float>(divisor),
             .found_inf = pointer<float>(inf),
             .step = pointer<float>(count),
             .beta1 = kBeta1,
             .beta2 = kBeta2,
             .eps = static_cast<float>(kEps)},
            nullptr);
}

/// The paper's rule in double, block by block.
class Reference {
 public:
  explicit Reference(const One& one) : one_(one), first_(size(one)), second_(size(one)) {
    const at::Tensor copy = wide(one.value);
    values_.assign(copy.const_data_ptr<double>(), copy.const_data_ptr<double>() + one.numel);
  }

  void step(int number) {
    const double lr = kLr * one_.lr_factor, count = number - one_.since;
    for (size_t i = 0; i < values_.size(); ++i) {
      const double g = one_.gradient.const_data_ptr<float>()[i] / 2.0;
      first_[i] = kBeta1 * first_[i] + (1 - kBeta1) * g;
      second_[i] = kBeta2 * second_[i] + (1 - kBeta2) * g * g;
      const double m = first_[i] / (1 - std::pow(kBeta1, count)), v = second_[i] / (1 - std::pow(kBeta2, count));
      values_[i] -= lr * one_.decay * values_[i];
      values_[i] -= lr * m / (std::sqrt(v) + kEps);
    }
    if (!one_.is_narrow) return;
    round(first_, /*is_signed=*/true);
    round(second_, /*is_signed=*/false);
  }
  at::Tensor values() const { return tensor_of(values_); }
  at::Tensor first() const { return tensor_of(first_); }
  at::Tensor second() const { return tensor_of(second_); }

 private:
  static size_t size(const One& one) { return static_cast<size_t>(one.numel); }
  at::Tensor tensor_of(const std::vector<double>& numbers) const {
    const at::Tensor copy = at::zeros({one_.numel}, at::kDouble);
    std::ranges::copy(numbers, copy.mutable_data_ptr<double>());
    return copy;
  }
  /// To the nearest values of the tree, times the largest of the block.
  static void round(std::vector<double>& numbers, bool is_signed) {
    const std::vector<double> tree = dynamic_tree(is_signed);
    for (size_t begin = 0; begin < numbers.size(); begin += kScaled) {
      const size_t end = std::min(numbers.size(), begin + kScaled);
      double largest = 0;
      for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(numbers[i]));
      for (size_t i = begin; i < end && largest > 0; ++i) {
        const double share = numbers[i] / largest;
        auto nearest = std::ranges::min_element(
            tree, [share](double a, double b) { return std::abs(a - share) < std::abs(b - share); });
        if (!is_signed && share > 0 && nearest == tree.begin()) ++nearest;
        numbers[i] = *nearest * largest;
      }
    }
  }

  const One& one_;
  std::vector<double> values_, first_, second_;
};

/// What the codes stand for.
at::Tensor numbers_of(const One& one, const at::Tensor& codes, const at::Tensor& scales, bool is_signed) {
  if (!one.is_narrow) return wide(codes);
  const std::vector<double> tree = dynamic_tree(is_signed);
  const at::Tensor found = at::zeros({one.numel}, at::kDouble);
  for (int64_t i = 0; i < one.numel; ++i)
    found.mutable_data_ptr<double>()[i] = tree[codes.const_data_ptr<uint8_t>()[i]] *
                                          static_cast<double>(scales.const_data_ptr<float>()[i / kScaled]);
  return found;
}

TEST(AdamW8bitKernel, FollowsThePapersRule) {
  std::vector<One> all = tensors();
  std::vector<Reference> references;
  for (const One& one : all) references.emplace_back(one);
  for (int step = 1; step <= kSteps; ++step) {
    update(all, step);
    for (Reference& reference : references) reference.step(step);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const One& one = all[i];
    const std::string name = "tensor " + std::to_string(i);
    // A number between two codes may go to either; this happens to few.
    expect_within(2e-4, one.value, references[i].values(), name + ", values");
    expect_within(5e-3, numbers_of(one, one.first, one.first_scales, true), references[i].first(), name + ", first");
    expect_within(5e-3, numbers_of(one, one.second, one.second_scales, false), references[i].second(),
                  name + ", second");
    EXPECT_TRUE(one.working.equal(one.value.to(at::kBFloat16))) << name;
  }
}

/// The fp32 kernel's results, rounded by ATen, are the bits that the kernel for bf16 writes.
TEST(AdamW8bitKernel, RoundsNarrowWeightsStochastically) {
  std::vector<One> narrow = tensors(), again = tensors(), wide_ones = tensors();
  for (std::vector<One>* all : {&narrow, &again}) {
    for (One& one : *all)
      for (at::Tensor* tensor : {&one.value, &one.gradient}) *tensor = tensor->to(at::kBFloat16);
  }
  for (int step = 1; step <= kSteps; ++step) {
    for (size_t i = 0; i < narrow.size(); ++i) {
      wide_ones[i].value.copy_(narrow[i].value);
      wide_ones[i].gradient.copy_(narrow[i].gradient);
    }
    update(wide_ones, step);
    update(narrow, step);
    update(again, step);
    for (size_t i = 0; i < narrow.size(); ++i) {
      const at::Tensor bits = rounding_words({.key = narrow[i].key()}, narrow[i].numel, at::full({}, step, at::kFloat),
                                             WordOrder::blocks, ops::RoundingUse::value);
      std::vector<at::Tensor> expected = wide_ones[i].state();
      expected[0] = rounded_stochastically(wide_ones[i].value, bits);
      expected[1] = narrow[i].working;
      expect_same_bits(narrow[i].state(), expected);
      expect_same_bits(narrow[i].state(), again[i].state());
    }
  }
}

TEST(AdamW8bitKernel, GivesTheSameBitsTwice) {
  std::vector<One> once = tensors(), again = tensors();
  for (int step = 1; step <= kSteps; ++step) {
    update(once, step);
    update(again, step);
  }
  for (size_t i = 0; i < once.size(); ++i) expect_same_bits(once[i].state(), again[i].state());
}

TEST(AdamW8bitKernel, ChangesNothingIfGradientsAreNotFinite) {
  std::vector<One> all = tensors(), before = tensors();
  for (One& one : all) one.gradient.fill_(std::numeric_limits<float>::infinity());
  update(all, 1, /*found_inf=*/1);
  for (size_t i = 0; i < all.size(); ++i) expect_same_bits(all[i].state(), before[i].state());
}

/// As 0, it would let a first average that is left make a step of any length.
TEST(AdamW8bitKernel, KeepsASquareAboveZero) {
  std::vector<One> all;
  all.emplace_back(256, true);
  all[0].gradient.fill_(1e-4);
  all[0].gradient[7] = 100;
  update(all, 1);
  EXPECT_TRUE(all[0].second.gt(0).all().item<bool>());
}

}  // namespace
}  // namespace gputrain::ops::cuda
