#include "../../../src/ops/cuda/kernels/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "gputrain/ops/stochastic_rounding.hpp"
#include "ops/kernels/kernel_case.hpp"

namespace gputrain::ops::cuda {
namespace {

using namespace testing_support;

constexpr int64_t kNumel = 6000, kOwned = 256;  // the updated range starts at kOwned
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kAdamEps = 1e-3, kLr = 0.01, kDecay = 0.1;

at::Tensor scalar(double value) { return at::full({1}, value, at::kFloat); }

/// Three ranges of an arena, the second without decay, with a gap that belongs to another rank. The third has half the
/// rate, and has had two more updates.
std::vector<Stretch> stretches() {
  std::vector<Stretch> list{{kOwned, 2052, 0, static_cast<float>(kDecay)},
                            {2052, 4100, 0, 0.0F},
                            {4200, kNumel, 0, static_cast<float>(kDecay), 0.5F, -2.0F}};
  int64_t blocks = 0;
  for (Stretch& stretch : list) {
    stretch.first_block = blocks;
    blocks += blocks_of(stretch.end - stretch.begin);
  }
  return list;
}

struct Arena {
  Element element = Element::fp32, averages = Element::fp32;
  at::Tensor values = noise({kNumel}, 1, at::kFloat), gradients = noise({kNumel}, 2, at::kFloat);
  at::Tensor first = at::zeros({kNumel}, at::kFloat), second = at::zeros({kNumel}, at::kFloat);
  at::Tensor working = poisoned({kNumel}, at::kBFloat16);
  at::Tensor lr = scalar(kLr), divisor = scalar(2), found_inf = scalar(0), step = scalar(0);
  std::vector<Stretch> table = stretches();

  Update update() const {
    return {.element = element,
            .values = pointer(values),
            .gradients = pointer(gradients),
            .working = element == Element::fp32 ? pointer(working) : nullptr,
            .working_element = Element::bf16,
            .stretches = table.data(),
            .count = static_cast<int>(table.size()),
            .blocks = table.back().first_block + blocks_of(table.back().end - table.back().begin),
            .lr = pointer<float>(lr),
            .divisor = pointer<float>(divisor),
            .found_inf = pointer<float>(found_inf)};
  }
  void adamw_step() {
    step.add_(1);
    adamw({.common = update(),
           .averages = averages,
           .first = pointer(first),
           .second = pointer(second),
           .step = pointer<float>(step),
           .beta1 = kBeta1,
           .beta2 = kBeta2,
           .eps = static_cast<float>(kAdamEps)},
          nullptr);
  }
  void sgd_step(double momentum, bool nesterov) {
    sgd({.common = update(),
         .velocity = momentum > 0 ? pointer<float>(first) : nullptr,
         .momentum = static_cast<float>(momentum),
         .nesterov = nesterov},
        nullptr);
  }
  std::vector<at::Tensor> state() const { return {values, first, second, working}; }
};

/// The update rules of the papers in double, on the given ranges.
struct Reference {
  std::vector<double> values, first = std::vector<double>(kNumel), second = std::vector<double>(kNumel);
  int step = 0;

  explicit Reference(const at::Tensor& start) {
    const at::Tensor copy = wide(start);
    values.assign(copy.const_data_ptr<double>(), copy.const_data_ptr<double>() + kNumel);
  }
  struct Settings {
    double decay, lr, step;
  };
  template <class Rule>  // void(value, gradient, settings, index)
  void each(const at::Tensor& gradients, const Rule& rule) {
    ++step;
    for (const Stretch& stretch : stretches()) {
      for (int64_t i = stretch.begin; i < stretch.end; ++i) {
        const auto index = static_cast<size_t>(i);
        const Settings settings{stretch.decay > 0 ? kDecay : 0.0, kLr * stretch.lr_factor,
                                step - double{stretch.since}};
        rule(values[index], gradients.const_data_ptr<float>()[i] / 2.0, settings, index);
      }
    }
  }
  void adamw(const at::Tensor& gradients) {
    each(gradients, [&](double& value, double g, const Settings& s, size_t i) {
      value *= 1 - s.lr * s.decay;
      first[i] = kBeta1 * first[i] + (1 - kBeta1) * g;
      second[i] = kBeta2 * second[i] + (1 - kBeta2) * g * g;
      const double m = first[i] / (1 - std::pow(kBeta1, s.step)), v = second[i] / (1 - std::pow(kBeta2, s.step));
      value -= s.lr * m / (std::sqrt(v) + kAdamEps);
    });
  }
  void sgd(const at::Tensor& gradients, double momentum, bool nesterov) {
    each(gradients, [&](double& value, double g, const Settings& s, size_t i) {
      g += s.decay * value;
      first[i] = momentum * first[i] + g;
      value -= s.lr * (nesterov ? g + momentum * first[i] : first[i]);
    });
  }
  at::Tensor tensor() const {
    at::Tensor copy = at::zeros({kNumel}, at::kDouble);
    std::copy(values.begin(), values.end(), copy.mutable_data_ptr<double>());
    return copy;
  }
};

/// Compares the changes of 10 steps with the reference's, and the working copy with the values.
template <class Ours, class Theirs>
void check(const Ours& ours, const Theirs& theirs) {
  Arena arena, again;
  const at::Tensor start = wide(arena.values);
  Reference reference(arena.values);
  for (uint64_t i = 0; i < 10; ++i) {
    arena.gradients.copy_(noise({kNumel}, 10 + i, at::kFloat));
    again.gradients.copy_(arena.gradients);
    ours(arena);
    ours(again);
    theirs(reference, arena.gradients);
  }
  expect_within(1e-6, arena.values, reference.tensor(), "values");
  expect_within(1e-5, wide(arena.values) - start, reference.tensor() - start, "changes");
  expect_same_bits(arena.state(), again.state());
  for (const Stretch& stretch : stretches()) {
    const int64_t size = stretch.end - stretch.begin;
    EXPECT_TRUE(arena.working.narrow(0, stretch.begin, size)
                    .equal(arena.values.narrow(0, stretch.begin, size).to(at::kBFloat16)));
  }
  // Values outside the ranges belong to others and must not change.
  EXPECT_TRUE(wide(arena.values).narrow(0, 4100, 100).equal(start.narrow(0, 4100, 100)));
  EXPECT_TRUE(wide(arena.values).narrow(0, 0, kOwned).equal(start.narrow(0, 0, kOwned)));
}

TEST(OptimizerKernels, FollowAdamW) {
  check([](Arena& arena) { arena.adamw_step(); }, [](Reference& r, const at::Tensor& g) { r.adamw(g); });
}

/// The fp32 kernel's results, rounded by ATen, are the bits that the kernel for bf16 writes.
void check_rounding(bool narrow_values, bool narrow_averages) {
  const auto narrow = [](at::Tensor& tensor) { tensor = tensor.to(at::kBFloat16); };
  Arena ours;
  if (narrow_values) ours.element = Element::bf16;
  if (narrow_averages) ours.averages = Element::bf16;
  for (int64_t i = 0; i < std::ssize(ours.table); ++i) {
    ours.table[static_cast<size_t>(i)].key = 0x9e3779b97f4a7c15 * static_cast<uint64_t>(i + 1);
    ours.table[static_cast<size_t>(i)].element = 4000 * i;
  }
  if (narrow_values)
    for (at::Tensor* one : {&ours.values, &ours.gradients}) narrow(*one);
  if (narrow_averages)
    for (at::Tensor* one : {&ours.first, &ours.second}) narrow(*one);
  Arena wide_arena;
  for (int i = 0; i < 3; ++i) {
    for (const auto& [to, from] : {std::pair(&wide_arena.values, &ours.values),
                                   {&wide_arena.gradients, &ours.gradients},
                                   {&wide_arena.first, &ours.first},
                                   {&wide_arena.second, &ours.second}})
      *to = from->to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    wide_arena.adamw_step();
    const at::Tensor before = ours.values.clone();
    ours.adamw_step();
    for (const Stretch& s : ours.table) {
      const int64_t size = s.end - s.begin;
      const auto words = [&](ops::RoundingUse use) {
        return rounding_words({.key = s.key, .begin = s.element}, size, ours.step.squeeze(0), WordOrder::neighbours, use);
      };
      const auto expect = [&](const at::Tensor& written, const at::Tensor& exact, bool is_rounded,
                              const at::Tensor& bits) {
        const at::Tensor part = exact.narrow(0, s.begin, size);
        expect_same_bits({written.narrow(0, s.begin, size)}, {is_rounded ? rounded_stochastically(part, bits) : part});
      };
      const at::Tensor of_averages = words(ops::RoundingUse::averages);
      expect(ours.values, wide_arena.values, narrow_values, words(ops::RoundingUse::value));
      expect(ours.first, wide_arena.first, narrow_averages, of_averages);
      expect(ours.second, wide_arena.second, narrow_averages, of_averages.bitwise_right_shift(16));
    }
    expect_same_bits({ours.values.narrow(0, 4100, 100)}, {before.narrow(0, 4100, 100)});
  }
}

TEST(OptimizerKernels, RoundAdamWStochastically) {
  check_rounding(true, false);
  check_rounding(false, true);
  check_rounding(true, true);
}

TEST(OptimizerKernels, FollowSgd) {
  for (const auto& [momentum, nesterov] : std::vector<std::pair<double, bool>>{{0, false}, {0.9, false}, {0.9, true}}) {
    check([&](Arena& arena) { arena.sgd_step(momentum, nesterov); },
          [&](Reference& r, const at::Tensor& g) { r.sgd(g, momentum, nesterov); });
  }
}

TEST(OptimizerKernels, SkipNonFiniteGradients) {
  Arena arena, untouched;
  arena.adamw_step();
  untouched.adamw_step();
  arena.gradients.fill_(std::nan(""));
  arena.found_inf.fill_(1);
  arena.adamw_step();
  arena.sgd_step(0.9, true);
  expect_same_bits(arena.state(), untouched.state());
}

TEST(GradientNormKernels, MatchReferenceForAnyCount) {
  for (const int64_t count : {int64_t{1}, int64_t{3}, int64_t{4}, int64_t{2050}, int64_t{30001}}) {
    const at::Tensor values = noise({count}, 3, at::kFloat), partials = poisoned({3}, at::kDouble);
    const at::Tensor square = poisoned({1}, at::kDouble);
    for (const Storage& storage : storages()) {
      const at::Tensor stored = values.to(storage.type);
      square_sums(storage.element, pointer(stored), count, pointer<double>(partials), 3, nullptr);
      total(pointer<double>(partials), 3, pointer<double>(square), nullptr);
      expect_within(1e-7, square, wide(stored).square().sum().view({1}), std::to_string(count));
    }
  }
}

struct Scalars {
  at::Tensor norm = poisoned({1}, at::kDouble), found_inf = poisoned({1}, at::kFloat),
             divisor = poisoned({1}, at::kFloat);
};

Scalars scalars_of(double square, const at::Tensor& scale, double max_norm) {
  const Scalars s;
  gradient_scalars({.square = &square,
                    .scale = pointer<float>(scale),
                    .max_norm = max_norm,
                    .norm = pointer<double>(s.norm),
                    .found_inf = pointer<float>(s.found_inf),
                    .divisor = pointer<float>(s.divisor)},
                   nullptr);
  return s;
}

TEST(GradientNormKernels, UnscaleAndClip) {
  const Scalars clipped = scalars_of(64 * 64.0 * 9, scalar(64), 1.5);  // norm 3 without its scale
  EXPECT_DOUBLE_EQ(clipped.norm.item<double>(), 3);
  EXPECT_EQ(clipped.found_inf.item<float>(), 0);
  EXPECT_NEAR(clipped.divisor.item<float>(), 128, 1e-3);
  EXPECT_EQ(scalars_of(9, {}, 5).divisor.item<float>(), 1);
  EXPECT_EQ(scalars_of(9, {}, 0).divisor.item<float>(), 1);
}

TEST(GradientNormKernels, ReportNonFiniteSums) {
  for (const double square : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_EQ(scalars_of(square, {}, 1).found_inf.item<float>(), 1);
  }
}

TEST(GradientNormKernels, SeeASingleNanOrInfinity) {
  for (const float bad : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
    const at::Tensor values = noise({5000}, 3, at::kFloat), partials = poisoned({4}, at::kDouble);
    values[4321].fill_(bad);
    square_sums(Element::fp32, pointer(values), 5000, pointer<double>(partials), 4, nullptr);
    EXPECT_FALSE(std::isfinite(partials.sum().item<double>()));
  }
}

}  // namespace
}  // namespace gputrain::ops::cuda
