#include "code_book.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gputrain/ops/quantized.hpp"

namespace gputrain::ops {
namespace {

static_assert(kScalesPerOuter == kScalesPerBlock);

constexpr std::array<float, 16> kNf4{-1.0F,
                                     -0.6961928009986877F,
                                     -0.5250730514526367F,
                                     -0.39491748809814453F,
                                     -0.28444138169288635F,
                                     -0.18477343022823334F,
                                     -0.09105003625154495F,
                                     0.0F,
                                     0.07958029955625534F,
                                     0.16093020141124725F,
                                     0.24611230194568634F,
                                     0.33791524171829224F,
                                     0.44070982933044434F,
                                     0.5626170039176941F,
                                     0.7229568362236023F,
                                     1.0F};

// A sign, two bits of exponent and one of mantissa, divided by the largest.
constexpr std::array<float, 16> kFp4{0.0F,       0.0625F / 12, 8.0F / 12,  1.0F,          4.0F / 12,  6.0F / 12,
                                     2.0F / 12,  3.0F / 12,    0.0F,       -0.0625F / 12, -8.0F / 12, -1.0F,
                                     -4.0F / 12, -6.0F / 12,   -2.0F / 12, -3.0F / 12};

CodeSteps steps_between(const std::array<float, 16>& values) {
  std::array<int32_t, 16> order;
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t code) { return values[static_cast<size_t>(code)]; });
  CodeSteps steps{.first = order[0]};
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    steps.bounds[i] = (values[static_cast<size_t>(order[i])] + values[static_cast<size_t>(order[i + 1])]) / 2;
    steps.changes[i] = order[i] ^ order[i + 1];
  }
  return steps;
}

/// Returns the values of dynamic_tree() as bitsandbytes computes them, in fp32: the means of neighbours among evenly
/// spread bounds, which are counted from the nearer end, times a power of ten. It rounds each bound once on processors
/// that fuse a product and a sum, which are nearly all.
std::array<float, 256> signed_tree() {
  std::array<float, 256> values{0, 1};
  size_t written = 2;
  for (int decade = 0; decade < 7; ++decade) {
    const int count = 1 << decade;
    const auto power = static_cast<float>(std::pow(10.0, decade - 6));
    const float step = (1.0F - 0.1F) / static_cast<float>(count);
    const auto bound = [&](int i) {
      return i < (count + 1) / 2 ? std::fma(step, static_cast<float>(i), 0.1F)
                                 : std::fma(-step, static_cast<float>(count - i), 1.0F);
    };
    for (int i = 0; i < count; ++i) {
      values[written] = power * ((bound(i) + bound(i + 1)) / 2);
      values[written + 1] = -values[written];
      written += 2;
    }
  }
  std::ranges::sort(values);
  return values;
}

}  // namespace

const std::array<float, 16>& values_of(Codebook book) { return book == Codebook::nf4 ? kNf4 : kFp4; }

const CodeSteps& steps_of(Codebook book) {
  static const CodeSteps nf4 = steps_between(kNf4), fp4 = steps_between(kFp4);
  return book == Codebook::nf4 ? nf4 : fp4;
}

const std::array<float, 256>& scale_values() {
  static const std::array<float, 256> values = signed_tree();
  return values;
}

}  // namespace gputrain::ops
