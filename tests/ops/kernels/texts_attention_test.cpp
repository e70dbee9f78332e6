// Attention of texts by cuDNN: what it is told of where they lie, read by a CPU version of it.
#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include "gputrain/ops/attention.hpp"
#include "ops/kernels/gpu_case.hpp"
#include "support/lanes/emulated_attention.hpp"

namespace gputrain::ops {
namespace {

using namespace testing_support;

class TextsByCudnn : public testing::Test {
 protected:
  TextsByCudnn() {
    emulated_capability = 9;
    texts_graphs.clear();
  }
  ~TextsByCudnn() override { emulated_capability = 0; }
};

/// One row of texts of these lengths, and attention within them.
AttentionOptions texts_of(const std::vector<int64_t>& lengths, int64_t most) {
  std::vector<at::Tensor> positions;
  int64_t longest = 0;
  for (const int64_t length : lengths) {
    positions.push_back(at::arange(length));
    longest = std::max(longest, length);
  }
  const at::Tensor row = at::cat(positions).unsqueeze(0);
  return {.positions = row, .texts = texts_of_positions(row, most, longest)};
}

/// Heads that are parts of one tensor, so that a row of theirs is longer than they are; or `are_apart`, so that a row
/// of queries is longer than one of keys.
void expect_equal_to_mask(const AttentionOptions& options, int64_t heads, int64_t key_heads, int64_t channels,
                          at::ScalarType type, bool are_apart = false) {
  const int64_t time = options.positions.size(1), width = (heads + 2 * key_heads) * channels;
  const at::Tensor values = noise({1, time, width}, 3, type), dy = noise({1, heads, time, channels}, 4, type);
  AttentionOptions masked = options;
  masked.texts = {};
  const auto computed = [&](at::ScalarType as, const AttentionOptions& how) {
    const at::Tensor packed = values.to(as, false, /*copy=*/true).set_requires_grad(true);
    auto [q, k, v] = unpacked(packed, heads, key_heads);
    for (at::Tensor* one : {&q, &k, &v})
      if (are_apart) *one = one->transpose(1, 2).contiguous().transpose(1, 2);
    // attention() computes short texts on a CPU in fp32.
    const at::Tensor y = how.texts.offsets.defined() ? gpu::attention_of_texts(q, k, v, how) : attention(q, k, v, how);
    y.backward(dy.to(as));
    return std::pair(y.detach(), packed.grad());
  };
  computed(type, options);  // tries both ways
  texts_graphs.clear();     // from here on those of the way that was chosen
  const auto [y, gradient] = computed(type, options);
  const auto [exact, exact_gradient] = computed(at::kDouble, masked);
  expect_within(type == at::kHalf ? 1e-3 : 5e-3, y, exact, "the result");
  expect_within(type == at::kHalf ? 2e-3 : 1e-2, gradient, exact_gradient, "the gradient");
}

TEST_F(TextsByCudnn, AreReadFromLengthsAndOffsets) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    for (const auto& [heads, key_heads, channels] : {std::tuple{4, 4, 64}, {6, 2, 16}, {4, 1, 128}})
      for (const int64_t window : {0, 3})
        for (const bool causal : {true, false}) {
          SCOPED_TRACE(std::to_string(heads) + "/" + std::to_string(key_heads) + " window " + std::to_string(window) +
                       (causal ? " causal" : ""));
          AttentionOptions options = texts_of({7, 1, 130, 2, 33}, 12);
          options.window = window;
          options.causal = causal;
          expect_equal_to_mask(options, heads, key_heads, channels, type);
          EXPECT_THAT(texts_graphs, testing::Contains("16 of 256 in 192")) << "of 173 rows";
        }
}

TEST_F(TextsByCudnn, AreReadFromTensorsOfTheirOwn) {
  expect_equal_to_mask(texts_of({7, 1, 30}, 9), 4, 2, 16, at::kBFloat16, /*are_apart=*/true);
  EXPECT_THAT(texts_graphs, testing::Contains("16 of 128 in 40"));
}

TEST_F(TextsByCudnn, AreFewPlans) {
  for (const auto& [most, longest, plan] :
       {std::tuple{2, 9, "8 of 128 in 10"}, {8, 120, "8 of 128 in 128"}, {9, 129, "16 of 256 in 160"}}) {
    AttentionOptions options = texts_of({longest, 1}, most);
    expect_equal_to_mask(options, 2, 2, 16, at::kBFloat16);
    EXPECT_THAT(texts_graphs, testing::Contains(plan));
  }
}

TEST_F(TextsByCudnn, AreFoundOnceForAllLayers) {
  const AttentionOptions options = texts_of({7, 5}, 4);
  const at::Tensor q = noise({1, 4, 12, 16}, 1, at::kBFloat16), k = noise({1, 2, 12, 16}, 2, at::kBFloat16);
  const at::Tensor in_rows = q.transpose(1, 2).contiguous().transpose(1, 2),
                   keys_in_rows = k.transpose(1, 2).contiguous().transpose(1, 2);
  gpu::attention_of_texts(in_rows, keys_in_rows, keys_in_rows, options);
  const auto tables = *options.texts.tables;
  EXPECT_EQ(tables.size(), 5) << "lengths; offsets of rows, queries, keys and logarithms";
  gpu::attention_of_texts(in_rows, keys_in_rows, keys_in_rows, options);
  EXPECT_EQ(options.texts.tables->size(), tables.size());
  for (const auto& [row, table] : tables) EXPECT_TRUE(table.is_same(options.texts.tables->at(row))) << row;
}

TEST_F(TextsByCudnn, FillEveryRow) {
  emulated_capability = 10;
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);  // fills new memory with NaN
  expect_equal_to_mask(texts_of({7, 1, 30}, 9), 4, 2, 16, at::kBFloat16);
  EXPECT_THAT(texts_graphs, testing::Contains("16 of 128 in 40"));
  texts_graphs.clear();
  emulated_capability = 9;
  expect_equal_to_mask(texts_of({7, 1, 31}, 9), 4, 2, 16, at::kBFloat16);
  EXPECT_TRUE(texts_graphs.empty()) << "Hopper needs the square of the longest text for equal bits";
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_F(TextsByCudnn, AreLeftToFlashAttentionWhereNoGradientExists) {
  has_attention_gradient = false;
  expect_equal_to_mask(texts_of({3, 17}, 5), 2, 2, 16, at::kBFloat16);
  has_attention_gradient = true;
}

TEST_F(TextsByCudnn, AreLeftToFlashAttentionWhereNoPlanFits) {
  for (const int64_t channels : {8, 24, 136}) {
    expect_equal_to_mask(texts_of({3, 12}, 5), 2, 2, channels, at::kBFloat16);
    EXPECT_TRUE(texts_graphs.empty()) << channels;
  }
  AttentionOptions options = texts_of({3, 12}, 5);
  options.dropout = 0.5;
  const at::Tensor x = noise({1, 2, 15, 16}, 1, at::kBFloat16);
  gpu::attention_of_texts(x, x, x, options);
  EXPECT_TRUE(texts_graphs.empty());
}

/// If memory is short, part of the rows is tried, with the texts in them.
TEST_F(TextsByCudnn, AreTriedOnPartOfTheirRows) {
  constexpr int64_t kText = 33, kTexts = 16, kHeads = 64, kChannels = 64;  // 2^21 elements; 2^20 are tried
  const AttentionOptions options = texts_of(std::vector<int64_t>(kTexts, kText), kTexts);
  const auto heads = [](uint64_t seed) {
    return noise({1, kText * kTexts, kHeads, kChannels}, seed, at::kBFloat16).transpose(1, 2);
  };
  const at::Tensor q = heads(1), k = heads(2), v = heads(3);
  most_rows_of_texts = 300;
  EXPECT_THROW(gpu::attention_of_texts(q, k, v, options), c10::OutOfMemoryError) << "chosen, and all rows have no room";
  most_rows_of_texts = INT64_MAX;
  EXPECT_TRUE(gpu::attention_of_texts(q, k, v, options).isfinite().all().item<bool>());
  EXPECT_THAT(texts_graphs.back(), testing::EndsWith("in 640"));
}

}  // namespace
}  // namespace gputrain::ops
