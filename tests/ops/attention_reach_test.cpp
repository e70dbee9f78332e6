#include <cmath>
#include <cstdlib>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "../../src/ops/attention_mask.hpp"
#include "gputrain/ops/attention.hpp"
#include "ops/compare.hpp"

namespace gputrain::ops {
namespace {

using testing_support::gradient_error;
using testing_support::random_leaf;
using testing_support::relative_error;

at::Tensor as_scalar(const at::Tensor& y) { return (y * random_leaf(y.sizes(), 99, y.scalar_type()).detach()).sum(); }

/// Softmax over the keys that `sees(row, query place, key)` allows, written out.
template <class Sees>
at::Tensor written_out(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Sees& sees) {
  at::Tensor hidden = at::zeros({q.size(0), 1, q.size(2), k.size(2)}, at::kDouble);
  for (int64_t row = 0; row < q.size(0); ++row) {
    for (int64_t i = 0; i < q.size(2); ++i) {
      for (int64_t j = 0; j < k.size(2); ++j) {
        if (!sees(row, i + k.size(2) - q.size(2), j)) hidden[row][0][i][j] = -1e30;
      }
    }
  }
  const at::Tensor products = at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(q.size(3)));
  return at::matmul(at::softmax(products + hidden, -1), v);
}

// Two rows of 7: texts of 3 and 4 tokens, and of 1, 5 and 1.
const std::vector<std::vector<int64_t>> kPlaces{{0, 1, 2, 0, 1, 2, 3}, {0, 0, 1, 2, 3, 4, 0}};

at::Tensor places() { return at::stack({at::tensor(kPlaces[0]), at::tensor(kPlaces[1])}); }

TEST(AttentionReach, EndsAtTheBeginOfAText) {
  const at::Tensor q = random_leaf({2, 4, 7, 6}, 1), k = random_leaf({2, 2, 7, 6}, 2), v = random_leaf({2, 2, 7, 6}, 3);
  const auto repeat = [](const at::Tensor& x) { return x.repeat_interleave(2, 1); };
  const auto sees = [](int64_t row, int64_t i, int64_t j) {
    return j <= i && i - j <= kPlaces[static_cast<size_t>(row)][static_cast<size_t>(i)];
  };
  const AttentionOptions options{.positions = places()};
  EXPECT_LT(relative_error(attention(q, k, v, options), written_out(q, repeat(k), repeat(v), sees)), 1e-12);
  EXPECT_LT(gradient_error([&] { return as_scalar(attention(q, k, v, options)); }, {q, k, v}), 1e-7);
}

TEST(AttentionReach, EndsAtTheWindow) {
  const at::Tensor q = random_leaf({2, 4, 7, 6}, 1), k = random_leaf({2, 4, 7, 6}, 2), v = random_leaf({2, 4, 7, 6}, 3);
  const AttentionOptions options{.window = 3};
  const auto sees = [](int64_t, int64_t i, int64_t j) { return j <= i && i - j < 3; };
  EXPECT_LT(relative_error(attention(q, k, v, options), written_out(q, k, v, sees)), 1e-12);
  EXPECT_LT(gradient_error([&] { return as_scalar(attention(q, k, v, options)); }, {q, k, v}), 1e-7);
  const AttentionOptions both{.window = 3, .positions = places()};
  const auto sees_both = [&](int64_t row, int64_t i, int64_t j) {
    return sees(row, i, j) && i - j <= kPlaces[static_cast<size_t>(row)][static_cast<size_t>(i)];
  };
  EXPECT_LT(relative_error(attention(q, k, v, both), written_out(q, k, v, sees_both)), 1e-12);
}

// As when a text is continued: the keys of earlier tokens are there already.
TEST(AttentionReach, CountsQueriesFromTheEnd) {
  const at::Tensor k = random_leaf({2, 4, 7, 6}, 2), v = random_leaf({2, 4, 7, 6}, 3);
  const at::Tensor shared_k = k.narrow(1, 1, 2), shared_v = v.narrow(1, 1, 2);  // each for two heads
  const auto repeat = [](const at::Tensor& x) { return x.repeat_interleave(2, 1); };
  for (const int64_t time : {1, 3}) {
    const at::Tensor q = random_leaf({2, 4, time, 6}, 1);
    const auto causal = [](int64_t, int64_t i, int64_t j) { return j <= i; };
    EXPECT_LT(relative_error(attention(q, k, v, {}), written_out(q, k, v, causal)), 1e-12) << time;
    const auto within = [&](int64_t row, int64_t i, int64_t j) {
      return causal(row, i, j) && i - j < 5 && i - j <= kPlaces[static_cast<size_t>(row)][static_cast<size_t>(i)];
    };
    const AttentionOptions options{.window = 5, .positions = places().narrow(1, 7 - time, time)};
    EXPECT_LT(relative_error(attention(q, k, v, options), written_out(q, k, v, within)), 1e-12) << time;
    const at::Tensor grouped = written_out(q, repeat(shared_k), repeat(shared_v), causal),
                     grouped_within = written_out(q, repeat(shared_k), repeat(shared_v), within);
    EXPECT_LT(relative_error(attention(q, shared_k, shared_v, {}), grouped), 1e-12) << time;
    EXPECT_LT(relative_error(attention(q, shared_k, shared_v, options), grouped_within), 1e-12) << time;
  }
}

/// Of a text that several share a row with: where it begins.
int64_t begin_of_text(int64_t row, int64_t i) { return i - kPlaces[static_cast<size_t>(row)][static_cast<size_t>(i)]; }

/// What attention that is not causal reads, of two rows of 7 tokens.
struct BothSides {
  int64_t window = 0;
  bool has_texts = false;
  std::vector<int64_t> lengths = {};

  AttentionOptions options() const {
    return {.causal = false,
            .window = window,
            .positions = has_texts ? places() : at::Tensor(),
            .lengths = lengths.empty() ? at::Tensor() : at::tensor(lengths)};
  }
  bool is_there(int64_t row, int64_t place) const {
    return lengths.empty() || place < lengths[static_cast<size_t>(row)];
  }
  bool sees(int64_t row, int64_t i, int64_t j) const {
    const bool is_near = window == 0 || std::abs(i - j) < window;
    return is_near && is_there(row, j) && (!has_texts || begin_of_text(row, i) == begin_of_text(row, j));
  }
  at::Tensor there() const {  // 1 where a query is no padding
    at::Tensor there = at::zeros({2, 1, 7, 1}, at::kDouble);
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t i = 0; i < 7; ++i) there[row][0][i][0] = is_there(row, i) ? 1 : 0;
    return there;
  }
};

const std::vector<BothSides> kBothSides{
    {},
    {.window = 3},
    {.has_texts = true},
    {.lengths = {7, 4}},
    {.lengths = {2, 0}},
    {.window = 2, .has_texts = true},
    {.window = 3, .lengths = {6, 1}},
    {.has_texts = true, .lengths = {5, 6}},
    {.window = 2, .has_texts = true, .lengths = {7, 2}},
};

TEST(AttentionReach, GoesToBothSidesAndNotToPadding) {
  const at::Tensor q = random_leaf({2, 4, 7, 6}, 1), k = random_leaf({2, 2, 7, 6}, 2), v = random_leaf({2, 2, 7, 6}, 3);
  const auto repeat = [](const at::Tensor& x) { return x.repeat_interleave(2, 1); };
  for (const BothSides& both : kBothSides) {
    const auto attended = [&] { return attention(q, k, v, both.options()); };
    const at::Tensor there = both.there();
    const at::Tensor expected =
        written_out(q, repeat(k), repeat(v), [&](int64_t row, int64_t i, int64_t j) { return both.sees(row, i, j); });
    EXPECT_TRUE(attended().isfinite().all().item<bool>());
    EXPECT_LT(relative_error(attended() * there, expected * there), 1e-12);
    EXPECT_LT(gradient_error([&] { return as_scalar(attended() * there); }, {q, k, v}), 1e-7);
  }
}

// A GPU computes with the mask where a CPU goes text by text.
TEST(AttentionReach, IsWhatTheMaskShows) {
  const at::Tensor q = random_leaf({2, 4, 7, 6}, 1);
  for (const BothSides& both : kBothSides) {
    if (!needs_mask(q, q, both.options())) continue;
    const at::Tensor visible = visible_keys(q, q, both.options());
    ASSERT_TRUE(visible.dim() == 4 && visible.size(1) == 1);
    const at::Tensor all = visible.expand({2, 1, 7, 7});
    EXPECT_TRUE(all.any(-1).all().item<bool>()) << "a query without a key gives NaN";
    for (int64_t row = 0; row < 2; ++row) {
      for (int64_t i = 0; i < 7 && both.is_there(row, i); ++i) {
        for (int64_t j = 0; j < 7; ++j) EXPECT_EQ(all[row][0][i][j].item<bool>(), both.sees(row, i, j)) << i << j;
      }
    }
  }
}

TEST(AttentionReach, NeedsNoMaskForWholeRows) {
  const at::Tensor q = random_leaf({2, 4, 7, 6}, 1);
  EXPECT_FALSE(needs_mask(q, q, {.causal = false}));
  EXPECT_FALSE(needs_mask(q, q, {.causal = false, .window = 7}));
  EXPECT_TRUE(needs_mask(q, q, {.causal = false, .window = 6}));
}

TEST(AttentionReach, DropsWeightsOnBothSides) {
  const at::Tensor q = random_leaf({1, 1, 50, 8}, 1).detach(), ones = at::ones_like(q);
  const AttentionOptions options{.causal = false, .dropout = 0.5, .lengths = at::tensor({int64_t{40}})};
  const at::Tensor sums = attention(q, q, ones, options);  // of each query's weights
  EXPECT_NEAR(sums.mean().item<double>(), 1, 0.2);
  EXPECT_GT(sums.std().item<double>(), 0.05);
}

TEST(AttentionReach, HoldsForPackedHeads) {
  const at::Tensor packed = random_leaf({2, 7, 8 * 6}, 1);
  const AttentionOptions options{.window = 3, .positions = places()};
  const auto [q, k, v] = unpacked(packed, 4, 2);
  const at::Tensor expected = attention(q, k, v, options).transpose(1, 2).reshape({2, 7, 24});
  EXPECT_LT(relative_error(packed_attention(packed, 4, 2, options), expected), 1e-12);
  const AttentionOptions padded{.causal = false, .lengths = at::tensor({int64_t{7}, int64_t{4}})};
  EXPECT_LT(relative_error(packed_attention(packed, 4, 2, padded),
                           attention(q, k, v, padded).transpose(1, 2).reshape({2, 7, 24})),
            1e-12);
}

TEST(RotaryOp, TurnsByGivenPositions) {
  const at::Tensor x = random_leaf({2, 3, 7, 8}, 1);
  const RotaryTable table(16, 8, 100.0, at::kDouble);
  const at::Tensor y = rotate(x, table.at(places()));
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t i = 0; i < 7; ++i) {
      const int64_t place = kPlaces[static_cast<size_t>(row)][static_cast<size_t>(i)];
      // The same vector in a text of its own, at that place.
      const at::Tensor alone = at::zeros({1, 3, place + 1, 8}, at::kDouble);
      alone.select(2, place).copy_(x.detach().narrow(0, row, 1).select(2, i));
      EXPECT_TRUE(rotate(alone, table).select(2, place)[0].equal(y[row].select(1, i))) << row << " " << i;
    }
  }
  EXPECT_LT(gradient_error([&] { return as_scalar(rotate(x, table.at(places()))); }, {x}), 1e-7);
}

}  // namespace
}  // namespace gputrain::ops
