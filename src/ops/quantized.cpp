#include "gputrain/ops/quantized.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/ops/blockwise_update.hpp"

namespace gputrain::ops {
namespace {

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

/// The values of codes in ascending order, with what decides between neighbours.
struct Ladder {
  explicit Ladder(std::vector<float> values) : order(values.size()) {
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int code) { return values[static_cast<size_t>(code)]; });
    for (size_t i = 0; i + 1 < order.size(); ++i)
      bounds.push_back((values[static_cast<size_t>(order[i])] + values[static_cast<size_t>(order[i + 1])]) / 2);
  }
  uint8_t code_of(float value) const {
    const auto above = std::ranges::lower_bound(bounds, value);  // a tie goes to the lower value
    return static_cast<uint8_t>(order[static_cast<size_t>(above - bounds.begin())]);
  }

  std::vector<int> order;
  std::vector<float> bounds;
};

const Ladder& ladder_of(Codebook book) {
  static const Ladder nf4({kNf4.begin(), kNf4.end()}), fp4({kFp4.begin(), kFp4.end()});
  return book == Codebook::nf4 ? nf4 : fp4;
}

const std::vector<float>& tree() {
  static const std::vector<float> values = [] {
    const std::vector<double> wide = dynamic_tree(/*is_signed=*/true);
    return std::vector<float>(wide.begin(), wide.end());
  }();
  return values;
}

const Ladder& tree_ladder() {
  static const Ladder ladder(tree());
  return ladder;
}

/// Calls `take(index, code)` for each of `count` values, and returns the scale of each block.
template <class Take>
void quantize_blocks(const float* values, int64_t count, int64_t block, const Ladder& ladder, float* scales,
                     const Take& take) {
  constexpr float kLeast = 1e-38F;
  for (int64_t begin = 0; begin < count; begin += block) {
    const int64_t end = std::min(count, begin + block);
    float most = 0;
    for (int64_t i = begin; i < end; ++i) most = std::max(most, std::abs(values[i]));
    const float divisor = std::max(most, kLeast), factor = 1 / divisor;
    const bool is_full = end - begin == block;
    scales[begin / block] = is_full ? most : divisor;
    for (int64_t i = begin; i < end; ++i)
      take(i, ladder.code_of(std::clamp(is_full ? values[i] * factor : values[i] / divisor, -1.0F, 1.0F)));
  }
}

/// Quantises scales to 8 bits.
void quantize_scales(const at::Tensor& scales, const Quantized4& into) {
  const at::Tensor mean = scales.mean(), rest = scales.sub(mean);
  into.scale_offset.fill_(mean);
  auto* codes = into.scales.mutable_data_ptr<uint8_t>();
  quantize_blocks(rest.const_data_ptr<float>(), rest.numel(), kScalesPerBlock, tree_ladder(),
                  into.scale_scales.mutable_data_ptr<float>(), [&](int64_t i, uint8_t code) { codes[i] = code; });
}

/// Returns the scales in fp32.
at::Tensor wide_scales(const Quantized4& from) {
  if (!from.has_quantized_scales()) return from.scales;
  const at::Tensor wide = at::empty(from.scales.sizes(), at::kFloat);
  const auto* codes = from.scales.const_data_ptr<uint8_t>();
  const auto* scales = from.scale_scales.const_data_ptr<float>();
  const float offset = from.scale_offset.item<float>();
  auto* written = wide.mutable_data_ptr<float>();
  for (int64_t i = 0; i < wide.numel(); ++i) {
    const float product = tree()[codes[i]] * scales[i / kScalesPerBlock];
    written[i] = product + offset;
  }
  return wide;
}

}  // namespace

const std::array<float, 16>& values_of(Codebook book) { return book == Codebook::nf4 ? kNf4 : kFp4; }

void quantize(const at::Tensor& matrix, const Quantized4& into) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = matrix.to(at::kFloat).contiguous();
  const int64_t count = values.numel();
  const at::Tensor scales =
      into.has_quantized_scales() ? at::empty({ceil_divide(count, into.block)}, at::kFloat) : into.scales;
  auto* codes = into.codes.mutable_data_ptr<uint8_t>();
  // The half after the last of an odd number of values stands for zero.
  const Ladder& ladder = ladder_of(into.book);
  if (count % 2 != 0) codes[count / 2] = ladder.code_of(0);
  quantize_blocks(values.const_data_ptr<float>(), count, into.block, ladder, scales.mutable_data_ptr<float>(),
                  [&](int64_t i, uint8_t code) {
                    uint8_t& pair = codes[i / 2];
                    pair = static_cast<uint8_t>(i % 2 == 0 ? (pair & 0x0F) | (code << 4) : (pair & 0xF0) | code);
                  });
  if (into.has_quantized_scales()) quantize_scales(scales, into);
}

void dequantize(const Quantized4& from, at::ScalarType stored, const at::Tensor& into) {
  const at::NoGradGuard no_grad;
  const at::Tensor scales = wide_scales(from), values = at::empty(into.sizes(), at::kFloat);
  const auto& book = values_of(from.book);
  const auto* codes = from.codes.const_data_ptr<uint8_t>();
  const auto* scale = scales.const_data_ptr<float>();
  auto* written = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    const int code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 0x0F;
    written[i] = book[static_cast<size_t>(code)] * scale[i / from.block];
  }
  into.copy_(values.to(stored));
}

void quantize(const at::Tensor& matrix, const QuantizedRows& into) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = matrix.to(at::kHalf);
  into.scales.copy_(std::get<0>(values.abs().max(1)));
  into.codes.copy_(values.mul(into.scales.reciprocal().mul(127).unsqueeze(1)).round());
}

void dequantize(const QuantizedRows& from, at::ScalarType stored, const at::Tensor& into) {
  const at::NoGradGuard no_grad;
  constexpr double kStep = 7.874015718698502e-3;
  into.copy_(from.codes.mul(from.scales.unsqueeze(1)).mul(kStep).to(stored));
}

}  // namespace gputrain::ops
