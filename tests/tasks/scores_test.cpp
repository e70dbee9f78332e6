// Scores against values of scikit-learn and scipy, and by hand.
#include <cmath>

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "../../src/tasks/scores.hpp"
#include "../../src/tasks/texts/entities.hpp"
#include "gputrain/data/batch.hpp"

namespace gputrain::tasks {
namespace {

at::Tensor rows_of(const std::vector<std::pair<double, double>>& pairs) {
  std::vector<double> values;
  for (const auto& [a, b] : pairs) {
    values.push_back(a);
    values.push_back(b);
  }
  return at::tensor(values, at::kDouble).view({-1, 2});
}

TEST(Scores, AreThoseOfTheConfusionMatrix) {
  // Predicted, true: both right, 3 + 2; class 0 taken for 1, once; class 1 taken for 0, twice.
  const Confusion two(rows_of({{0, 0}, {0, 0}, {0, 0}, {1, 1}, {1, 1}, {1, 0}, {0, 1}, {0, 1}, {1, kIgnoreIndex}}));
  EXPECT_DOUBLE_EQ(two.f1(), 2 * 2.0 / (3 + 4));
  EXPECT_DOUBLE_EQ(two.f1_macro(), (2 * 3.0 / (5 + 4) + 4.0 / 7) / 2);
  EXPECT_NEAR(two.mcc(), (2.0 * 3 - 1 * 2) / std::sqrt(3.0 * 4 * 4 * 5), 1e-12);
  const Confusion three(rows_of({{0, 0}, {1, 1}, {2, 2}, {2, 1}}));
  EXPECT_DOUBLE_EQ(three.f1(), three.f1_macro());
  EXPECT_NEAR(three.f1_macro(), (1 + 2.0 / 3 + 2.0 / 3) / 3, 1e-12);
  EXPECT_NEAR(three.mcc(), 0.7, 1e-12);
  EXPECT_EQ(Confusion(rows_of({{0, 0}, {0, 0}})).mcc(), 0);
}

TEST(Scores, CorrelateNumbersAndTheirRanks) {
  const at::Tensor rows = rows_of({{1, 2}, {2, 1}, {3, 4}, {4, 3}, {5, 100}, {9, std::nan("")}});
  EXPECT_NEAR(spearman(rows), 0.8, 1e-12);
  EXPECT_NEAR(pearson(rows), 0.717749, 1e-6);
  EXPECT_NEAR(spearman(rows_of({{1, 1}, {1, 2}, {2, 3}})), std::sqrt(3.0) / 2, 1e-12);
  EXPECT_EQ(pearson(rows_of({{1, 1}, {1, 2}})), 0);
}

TEST(Entities, AreRunsOfTagsOfOneKind) {
  const at::Tensor codes = tag_codes({"B-LOC", "B-PER", "I-LOC", "I-PER", "O"}, 5);
  enum Tag : int64_t { kBeginPlace, kBeginPerson, kInPlace, kInPerson, kNone };
  const auto hits = [&](const std::vector<std::pair<int64_t, int64_t>>& words) {
    std::vector<double> rows;
    for (size_t i = 0; i < words.size(); ++i)
      for (const double value :
           {codes[words[i].first].item<double>(), codes[words[i].second].item<double>(), static_cast<double>(i)})
        rows.push_back(value);
    return entity_hits(at::tensor(rows, at::kDouble).view({-1, kTagColumns}));
  };
  const Hits some = hits({{kBeginPlace, kBeginPlace},
                          {kInPlace, kInPlace},
                          {kNone, kNone},
                          {kBeginPerson, kBeginPerson},
                          {kNone, kInPerson},
                          {kInPlace, kBeginPlace}});
  EXPECT_EQ(some.both, 2);  // the person is cut short; I-LOC alone is a place
  EXPECT_EQ(some.predicted, 3);
  EXPECT_EQ(some.true_ones, 3);
  const Hits neighbours = hits({{kBeginPlace, kBeginPlace}, {kInPlace, kBeginPlace}, {kInPerson, kInPlace}});
  EXPECT_EQ(neighbours.both, 0);
  EXPECT_EQ(neighbours.predicted, 2);
  EXPECT_EQ(neighbours.true_ones, 2);
}

TEST(Entities, HaveKindsAndPlaces) {
  std::vector<std::string> found;
  for (const Entity& entity : entities_in({"O", "I-LOC", "B-LOC", "I-LOC", "I-PER", "O", "NOUN"}))
    found.push_back(entity.kind + " " + std::to_string(entity.begin) + " " + std::to_string(entity.end));
  EXPECT_EQ(found, (std::vector<std::string>{"LOC 1 2", "LOC 2 4", "PER 4 5", "NOUN 6 7"}));
  EXPECT_TRUE(entities_in({}).empty());
}

std::string found_in(const std::vector<std::string>& tags) {
  std::string found;
  for (const Entity& one : entities_in(tags))
    found += one.kind + " " + std::to_string(one.begin) + "-" + std::to_string(one.end) + ", ";
  return found;
}

// The entities are those that seqeval finds in these tags.
TEST(Entities, AreReadByBioesAndBilou) {
  EXPECT_EQ(found_in({"S-A", "O", "B-P", "I-P", "E-P", "O"}), "A 0-1, P 2-5, ");
  EXPECT_EQ(found_in({"S-A", "S-A", "E-A", "I-A"}), "A 0-1, A 1-2, A 2-3, A 3-4, ");
  EXPECT_EQ(found_in({"B-A", "E-A", "E-A", "B-A", "S-A"}), "A 0-2, A 2-3, A 3-4, A 4-5, ");
  EXPECT_EQ(found_in({"B-A", "E-P", "O"}), "A 0-1, P 1-2, ");
  EXPECT_EQ(found_in({"U-A", "O", "B-P", "I-P", "L-P", "U-A"}), "A 0-1, P 2-5, A 5-6, ");
  EXPECT_TRUE(mark_entities({"O", "S-A"}));
  EXPECT_TRUE(mark_entities({"U-A"}));
  EXPECT_FALSE(mark_entities({"O", "NOUN"}));
  const at::Tensor codes = tag_codes({"B-P", "E-P", "S-P", "O"}, 4);
  const auto row = [&](int64_t guess, int64_t truth, int64_t place) {
    return std::vector<double>{codes[guess].item<double>(), codes[truth].item<double>(), static_cast<double>(place)};
  };
  std::vector<double> rows;
  for (const auto& one : {row(0, 0, 0), row(1, 1, 1), row(2, 2, 2), row(2, 0, 3), row(2, 1, 4)})
    rows.insert(rows.end(), one.begin(), one.end());
  const Hits hits = entity_hits(at::tensor(rows, at::kDouble).view({-1, kTagColumns}));
  EXPECT_EQ(hits.both, 2);  // two single words are not one entity of two words
  EXPECT_EQ(hits.predicted, 4);
  EXPECT_EQ(hits.true_ones, 3);
}

TEST(Entities, EndWithTheirTextAndAreOfOneWordWithoutParts) {
  const at::Tensor codes = tag_codes({"NOUN", "O"}, 2);
  const double noun = codes[0].item<double>(), none = codes[1].item<double>();
  const Hits hits =
      entity_hits(at::tensor(std::vector<double>{noun, noun, 0, -1, -1, 1, noun, none, 0, noun, noun, 1}, at::kDouble)
                      .view({-1, 3}));
  EXPECT_EQ(hits.both, 2);
  EXPECT_EQ(hits.predicted, 3);
  EXPECT_EQ(hits.true_ones, 2);
}

}  // namespace
}  // namespace gputrain::tasks
