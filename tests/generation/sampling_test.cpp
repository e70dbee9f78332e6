#include "gputrain/generation/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/generation/next_tokens.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/random.hpp"

namespace gputrain::generation {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pair;

/// The candidates as pairs, with whole percents of probability.
std::vector<std::pair<int64_t, double>> percents(std::vector<double> logits, const Sampling& sampling,
                                                 const std::vector<int64_t>& text = {}) {
  std::vector<std::pair<int64_t, double>> found;
  for (const Candidate& each : candidates(logits, text, sampling))
    found.emplace_back(each.token, 100 * each.probability);
  return found;
}

auto is(int64_t token, double percent) { return Pair(token, DoubleNear(percent, 1e-9)); }

/// Logits with these probabilities.
std::vector<double> logits_of(const std::vector<double>& probabilities) {
  std::vector<double> logits;
  for (const double p : probabilities) logits.push_back(std::log(p) + 3);
  return logits;
}

const std::vector<double> kFour = logits_of({0.1, 0.4, 0.2, 0.3});

TEST(Sampling, TakesMostLikelyAtTemperatureZero) {
  EXPECT_THAT(percents(kFour, {}), ElementsAre(is(1, 100)));
  EXPECT_THAT(percents({1, 5, 5, 2}, {}), ElementsAre(is(1, 100)));  // the first of two
}

TEST(Sampling, DividesLogitsByTemperature) {
  EXPECT_THAT(percents(kFour, {.temperature = 1}), ElementsAre(is(0, 10), is(1, 40), is(2, 20), is(3, 30)));
  // Squares of 1, 4, 2 and 3, of 30.
  EXPECT_THAT(percents(kFour, {.temperature = 0.5}),
              ElementsAre(is(0, 100 / 30.), is(1, 1600 / 30.), is(2, 400 / 30.), is(3, 900 / 30.)));
}

TEST(Sampling, KeepsTopKAndThoseAsLikely) {
  EXPECT_THAT(percents(kFour, {.temperature = 1, .top_k = 2}), ElementsAre(is(1, 400 / 7.), is(3, 300 / 7.)));
  EXPECT_THAT(percents({1, 1, 0, 2}, {.temperature = 1, .top_k = 2}).size(), 3U);
  EXPECT_THAT(percents(kFour, {.temperature = 1, .top_k = 9}).size(), 4U);
}

TEST(Sampling, KeepsTokensThatReachTopP) {
  EXPECT_THAT(percents(kFour, {.temperature = 1, .top_p = 0.69}), ElementsAre(is(1, 400 / 7.), is(3, 300 / 7.)));
  EXPECT_THAT(percents(kFour, {.temperature = 1, .top_p = 0.71}),
              ElementsAre(is(1, 400 / 9.), is(2, 200 / 9.), is(3, 300 / 9.)));
  EXPECT_THAT(percents(kFour, {.temperature = 1, .top_p = 0}), ElementsAre(is(1, 100)));
  // Of what top_k leaves: 4, 2 and 3 of 9, of which the first two have 7.
  EXPECT_THAT(percents(kFour, {.temperature = 1, .top_k = 3, .top_p = 0.75}),
              ElementsAre(is(1, 400 / 7.), is(3, 300 / 7.)));
}

TEST(Sampling, KeepsTopPOfManyTokens) {
  std::vector<double> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = -static_cast<double>((i * 389) % 1000) / 300;
  std::vector<double> weights;
  double sum = 0, reached = 0;
  for (const double logit : logits) weights.push_back(std::exp(logit));
  for (const double weight : weights) sum += weight;
  std::ranges::sort(weights, std::greater<>());
  size_t count = 0;
  while (reached < 0.9 * sum) reached += weights[count++];
  EXPECT_EQ(percents(logits, {.temperature = 1, .top_p = 0.9}).size(), count);
  EXPECT_GT(count, 400U);
}

TEST(Sampling, KeepsPartOfHighestByMinP) {
  EXPECT_THAT(percents(kFour, {.temperature = 1, .min_p = 0.6}), ElementsAre(is(1, 400 / 7.), is(3, 300 / 7.)));
  EXPECT_THAT(percents(kFour, {.temperature = 0.5, .min_p = 0.6}), ElementsAre(is(1, 100)));  // 9 of 16
}

TEST(Sampling, PenalisesTokensOfText) {
  const std::vector<double> logits{2, -1, 1, 0.5};
  const auto found = percents(logits, {.repetition_penalty = 2, .temperature = 1}, {0, 1, 0, 99});
  const double sum = std::exp(1) + std::exp(-2) + std::exp(1) + std::exp(0.5);
  EXPECT_THAT(found, ElementsAre(is(0, 100 * std::exp(1) / sum), is(1, 100 * std::exp(-2) / sum),
                                 is(2, 100 * std::exp(1) / sum), is(3, 100 * std::exp(0.5) / sum)));
  EXPECT_THAT(percents(logits, {.repetition_penalty = 3}, {0}), ElementsAre(is(2, 100)));
}

TEST(Sampling, RefusesLogitsThatAreNoNumbers) {
  EXPECT_THROW(percents({1, std::nan(""), 2}, {}), Error);
  EXPECT_THROW(percents({1, std::numeric_limits<double>::infinity()}, {}), Error);
  EXPECT_EQ(percents({1, -std::numeric_limits<double>::infinity()}, {.temperature = 1}).size(), 1U);
}

/// What transformers' definitions give, computed in another way: by rank of every token.
std::map<int64_t, double> expected_probabilities(const std::vector<double>& logits, const Sampling& sampling) {
  std::vector<size_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  order.resize(static_cast<size_t>(sampling.top_k));
  long double sum = 0;
  std::map<int64_t, double> kept;
  for (const size_t i : order) sum += std::exp(static_cast<long double>(logits[i] / sampling.temperature));
  long double before = 0, kept_sum = 0;
  for (const size_t i : order) {
    const long double weight = std::exp(static_cast<long double>(logits[i] / sampling.temperature));
    const long double highest = std::exp(static_cast<long double>(logits[order[0]] / sampling.temperature));
    if (before < sampling.top_p * sum && weight >= sampling.min_p * highest) {
      kept[static_cast<int64_t>(i)] = static_cast<double>(weight);
      kept_sum += weight;
    }
    before += weight;
  }
  for (auto& [token, weight] : kept) weight /= static_cast<double>(kept_sum);
  return kept;
}

TEST(Sampling, DrawsWithStatedProbabilities) {
  RandomStream random(7, 1);
  std::vector<double> logits(50);
  for (double& logit : logits) logit = random.uniform(-3, 3);
  const Sampling sampling{.temperature = 1.3, .top_k = 30, .top_p = 0.9, .min_p = 0.05};
  const auto expected = expected_probabilities(logits, sampling);
  ASSERT_GT(expected.size(), 8U);
  constexpr int kDraws = 100000;
  std::map<int64_t, int> counts;
  for (int i = 0; i < kDraws; ++i) {
    std::vector<double> copy = logits;
    ++counts[next_token(copy, {}, sampling, random.uniform())];
  }
  double chi_square = 0;
  for (const auto& [token, probability] : expected)
    chi_square += std::pow(counts[token] - kDraws * probability, 2) / (kDraws * probability);
  EXPECT_EQ(counts.size(), expected.size());  // no other token
  const auto freedom = static_cast<double>(expected.size() - 1);
  EXPECT_LT(chi_square, freedom + 3.1 * std::sqrt(2 * freedom));  // one run in a thousand is above
}

const std::vector<int64_t> kText{701};

std::vector<Sampling> all_ways() {
  std::vector<Sampling> ways{{}};
  for (const double penalty : {1.0, 1.3, 0.7})
    for (const double temperature : {0.7, 1.0, 1.9})
      for (const int64_t top_k : {0, 1, 40, 5000})
        for (const double top_p : {1.0, 0.9, 0.3, 0.0})
          for (const double min_p : {0.0, 0.05}) ways.push_back({penalty, temperature, top_k, top_p, min_p});
  ways.push_back({.repetition_penalty = 1.3});
  return ways;
}

/// Logits [rows, words] of a model that is sure of some words: of 16 bits, so that many are equal.
at::Tensor sure_logits(int64_t rows, int64_t words, at::ScalarType type, uint64_t seed) {
  RandomStream random(seed, 1);
  const at::Tensor logits = at::empty({rows, words}, at::kDouble);
  double* const value = logits.mutable_data_ptr<double>();
  for (int64_t i = 0; i < rows * words; ++i) value[i] = random.uniform(-8, 8) + (random.uniform() < 0.01 ? 9 : 0);
  return logits.to(type);
}

TEST(Sampling, DrawsTheSameTokensFromFewLogits) {
  constexpr int64_t kRows = 3, kWords = 4000;
  RandomStream random(4, 2);
  uint64_t seed = 0;
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const Sampling& sampling : all_ways()) {
      const at::Tensor logits = sure_logits(kRows, kWords, type, ++seed);
      const std::vector<int64_t> text{5, 17, 5, 3999, 210};
      std::vector<Draw> draws;
      for (const size_t row : {size_t{0}, size_t{2}}) draws.push_back({row, text, random.uniform()});
      draws[0].text = std::span(text).first(2);
      EXPECT_EQ(next_tokens_by_few(logits, draws, sampling), next_tokens(logits, draws, sampling))
          << sampling.repetition_penalty << " " << sampling.temperature << " " << sampling.top_k << " "
          << sampling.top_p << " " << sampling.min_p;
    }
  }
}

TEST(Sampling, TakesFirstOfManyEqualLogits) {
  const at::Tensor logits = at::zeros({2, 3000}, at::kBFloat16);
  logits.narrow(1, 700, 2000).fill_(1);
  for (const Sampling& sampling : all_ways()) {
    const std::vector<Draw> draws{{0, kText, 0.3}, {1, kText, 0.999999}};
    EXPECT_EQ(next_tokens_by_few(logits, draws, sampling), next_tokens(logits, draws, sampling));
  }
}

/// Numbers that stand where a token's probability ends: which token they give depends on the last bits of sums.
TEST(Sampling, AsksTheWholeRowWhereSumsAreNotExactEnough) {
  const at::Tensor logits = at::zeros({1, 4096}, at::kFloat);
  for (int64_t i = 0; i < 4096; i += 37) {
    const double uniform = static_cast<double>(i) / 4096;
    const std::vector<Draw> draws{{0, kText, uniform}};
    EXPECT_EQ(next_tokens_by_few(logits, draws, {.temperature = 1}), next_tokens(logits, draws, {.temperature = 1}));
  }
}

TEST(Sampling, RefusesLogitsThatAreNoNumbersInAnyWay) {
  for (const double wrong : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const at::Tensor logits = sure_logits(1, 4000, at::kFloat, 1);
    logits.narrow(1, 77, 1).fill_(wrong);
    const std::vector<Draw> draws{{0, kText, 0.5}};
    for (const Sampling& sampling : all_ways()) EXPECT_THROW(next_tokens_by_few(logits, draws, sampling), Error);
  }
}

/// A model's few likely words are decided by few logits; the test would pass as well if all rows were read.
TEST(Sampling, NeedsFewLogitsOfSureModels) {
  const at::Tensor logits = sure_logits(1, 4000, at::kDouble, 3);
  const auto [largest, tokens] = at::topk(logits, 1024, 1);
  const at::Tensor numbers = tokens.to(at::kDouble);
  const auto span_of = [](const at::Tensor& x) { return std::span(x.const_data_ptr<double>(), 1024); };
  const double whole = at::exp(logits - logits.max()).sum().item<double>();
  const LargestLogits known{span_of(largest), span_of(numbers), whole, 1e-9};
  EXPECT_TRUE(next_token_of_largest(known, {.temperature = 1, .top_k = 40}, 0.5));
  EXPECT_TRUE(next_token_of_largest(known, {.temperature = 1, .top_p = 0.9}, 0.5));
  EXPECT_TRUE(next_token_of_largest(known, {.temperature = 1, .min_p = 0.05}, 0.5));
  EXPECT_TRUE(next_token_of_largest(known, {.temperature = 1, .top_p = 0.99999999, .min_p = 0.05}, 0.5));
  EXPECT_FALSE(next_token_of_largest(known, {.temperature = 1, .top_p = 0.99999999}, 0.5));
  EXPECT_FALSE(next_token_of_largest(known, {.temperature = 1, .min_p = 1e-9}, 0.5));
}

}  // namespace
}  // namespace gputrain::generation
