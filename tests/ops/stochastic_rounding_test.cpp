#include "gputrain/ops/stochastic_rounding.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "gputrain/core/random.hpp"

namespace gputrain::ops {
namespace {

constexpr uint64_t kKey = 0x8f1bbcdc5a827999;

at::Tensor step(double value) { return at::full({}, value, at::kFloat); }

int64_t word(const at::Tensor& words, int64_t i) { return words.const_data_ptr<int64_t>()[i]; }

TEST(RoundingWords, AreThoseOfPhilox) {
  const at::Tensor near =
      rounding_words({.key = kKey, .begin = 8}, 21, step(3), WordOrder::neighbours, RoundingUse::value);
  const at::Tensor far =
      rounding_words({.key = kKey, .begin = 1024}, 1500, step(70000), WordOrder::blocks, RoundingUse::averages);
  ASSERT_EQ(near.size(0), 21);
  ASSERT_EQ(far.size(0), 1500);
  for (int64_t i = 0; i < 21; ++i) {
    const auto number = static_cast<uint64_t>(i + 8);
    EXPECT_EQ(word(near, i), philox(kKey, number / 4, 3)[number % 4]);
  }
  for (int64_t i = 0; i < 1500; ++i) {
    const auto number = static_cast<uint64_t>(i + 1024), draw = number / 1024 * 256 + number % 256;
    EXPECT_EQ(word(far, i), philox(kKey, draw, 70000 | uint64_t{1} << 32)[number / 256 % 4]) << i;
  }
}

/// A part has the bits that it has in the whole.
TEST(RoundingWords, DoNotDependOnWhereAPartBegins) {
  for (const WordOrder order : {WordOrder::neighbours, WordOrder::blocks}) {
    const at::Tensor all = rounding_words({.key = kKey}, 5000, step(1), order, RoundingUse::value);
    const at::Tensor part = rounding_words({.key = kKey, .begin = 2048}, 1200, step(1), order, RoundingUse::value);
    EXPECT_TRUE(all.narrow(0, 2048, 1200).equal(part));
  }
}

TEST(StochasticRounding, KeepsTheMean) {
  constexpr int64_t kCount = 1 << 20;
  for (const double value : {1.0 + 1.0 / 1024, -3.3, 1e-30}) {
    const at::Tensor all = at::full({kCount}, value, at::kFloat);
    const at::Tensor rounded = rounded_stochastically(all, rounding_words({.key = kKey}, kCount, step(1),
                                                                          WordOrder::blocks, RoundingUse::value))
                                   .to(at::kDouble);
    const double unit = std::abs(value) / 128, exact = all[0].item<double>();
    EXPECT_NEAR(rounded.mean().item<double>(), exact, unit / 2 / std::sqrt(kCount) * 4);
    EXPECT_LT((rounded - exact).abs().max().item<double>(), unit);
    EXPECT_TRUE(rounded.min().item<double>() < exact && exact < rounded.max().item<double>());
  }
}

TEST(StochasticRounding, KeepsWhatBf16CanHold) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const at::Tensor values = at::tensor(std::vector<float>{0, -0.0F, 1, -1.5F, 3e38F, kInfinity, -kInfinity});
  const at::Tensor narrow = values.to(at::kBFloat16);
  for (const int64_t bits : {int64_t{0}, int64_t{0xffff}, int64_t{0xffffffff}}) {
    const at::Tensor rounded = rounded_stochastically(narrow.to(at::kFloat), at::full({7}, bits, at::kLong));
    EXPECT_TRUE(rounded.view(at::kShort).equal(narrow.view(at::kShort))) << bits;
  }
}

TEST(StochasticRounding, KeepsEveryNaN) {
  const at::Tensor bits = at::tensor(std::vector<int>{0x7fffffff, 0x7f800001, -1, 0x7fc00000});
  const at::Tensor rounded = rounded_stochastically(bits.view(at::kFloat), at::full({4}, 0xffff, at::kLong));
  EXPECT_TRUE(rounded.isnan().all().item<bool>());
}

}  // namespace
}  // namespace gputrain::ops
