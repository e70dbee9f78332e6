#include "gputrain/ops/stochastic_rounding.hpp"

#include <array>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::ops {
namespace {

constexpr int64_t kWord = 0xffffffff;

/// Returns high and low word of a product of two words. int64 wraps, and the words are those of uint64.
std::pair<at::Tensor, at::Tensor> product(const at::Tensor& word, int64_t factor) {
  const at::Tensor all = word.mul(factor);
  return {all.bitwise_right_shift(32).bitwise_and_(kWord), all.bitwise_and(kWord)};
}

/// Computes Philox4x32-10 on words in int64 tensors: [draws, 4] from the counters' low halves [draws]. As
/// gputrain::philox(), but on any device.
at::Tensor philox_words(uint64_t key, const at::Tensor& low, const at::Tensor& step, int64_t use) {
  constexpr int64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57, kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  auto key_0 = static_cast<int64_t>(key & kWord), key_1 = static_cast<int64_t>(key >> 32);
  std::array<at::Tensor, 4> words{low.bitwise_and(kWord), low.bitwise_right_shift(32), step,
                                  at::full({}, use, low.options())};
  for (int round = 0; round < 10; ++round) {
    const auto [high_0, low_0] = product(words[0], kMultiply0);
    const auto [high_1, low_1] = product(words[2], kMultiply1);
    words = {high_1.bitwise_xor(words[1]).bitwise_xor(key_0), low_1, high_0.bitwise_xor(words[3]).bitwise_xor(key_1),
             low_0};
    key_0 = (key_0 + kWeyl0) & kWord;
    key_1 = (key_1 + kWeyl1) & kWord;
  }
  for (at::Tensor& word : words) word = word.expand_as(low);
  return at::stack(words, 1);
}

}  // namespace

at::Tensor rounding_words(const RoundedElements& elements, int64_t count, const at::Tensor& step, WordOrder order,
                          RoundingUse use) {
  constexpr int64_t kWords = 4, kStride = 256;  // kStride: kQuantizedBlock
  const int64_t together = order == WordOrder::neighbours ? kWords : kWords * kStride;
  GPUTRAIN_ASSERT(elements.begin % together == 0, "elements begin with a draw");
  const int64_t first = elements.begin / kWords, draws = ceil_divide(count, together) * together / kWords;
  const at::Tensor low = at::arange(first, first + draws, step.options().dtype(at::kLong));
  at::Tensor words = philox_words(elements.key, low, step.to(at::kLong), static_cast<int64_t>(use));
  if (order == WordOrder::blocks) words = words.view({-1, kStride, kWords}).transpose(1, 2);
  return words.reshape(-1).narrow(0, 0, count);
}

at::Tensor rounded_stochastically(const at::Tensor& values, const at::Tensor& bits) {
  constexpr int kDropped = 0xffff;
  const at::Tensor raised = values.view(at::kInt).add(bits.bitwise_and(kDropped).to(at::kInt)).bitwise_and_(~kDropped);
  return at::where(values.isnan(), values, raised.view(at::kFloat)).to(at::kBFloat16);
}

}  // namespace gputrain::ops
