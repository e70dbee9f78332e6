// Lengths of batches on a GPU: few, and close to those of the texts.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/data/loading/length_classes.hpp"

namespace gputrain::data {
namespace {

using ::testing::ElementsAre;

int64_t padded(const LengthClasses& classes, const std::vector<int64_t>& lengths) {
  int64_t sum = 0;
  for (const int64_t length : lengths) sum += classes.of(length);
  return sum;
}

TEST(LengthClasses, HoldEveryLengthUpToTheMost) {
  for (const int64_t most : {1, 15, 16, 17, 100, 1000, 131'072}) {
    for (const LengthClasses& classes : {LengthClasses::halved(most), LengthClasses::fitted({1}, most, 8)}) {
      EXPECT_EQ(classes.all().back(), most);
      EXPECT_TRUE(std::ranges::is_sorted(classes.all()));
      for (const int64_t length : {int64_t{1}, (most + 1) / 2, most}) EXPECT_GE(classes.of(length), length) << most;
    }
  }
  EXPECT_THAT(LengthClasses::halved(200).all(), ElementsAre(16, 32, 64, 112, 200));
}

TEST(LengthClasses, PadLessThanAnyOthersOfTheSameNumber) {
  std::mt19937 random(3);
  std::vector<int64_t> lengths;
  for (int i = 0; i < 500; ++i)
    lengths.push_back(1 + static_cast<int64_t>(random() % 7) * static_cast<int64_t>(random() % 20));
  constexpr int64_t kMost = 128;
  const int64_t found = padded(LengthClasses::fitted(lengths, kMost, 3), lengths);
  for (int64_t one = 16; one < kMost; one += 16)
    for (int64_t two = one + 16; two < kMost; two += 16) {
      int64_t sum = 0;
      for (const int64_t length : lengths) sum += length <= one ? one : length <= two ? two : kMost;
      EXPECT_LE(found, sum) << one << " " << two;
    }
}

TEST(LengthClasses, AreFewWhereMoreSaveNothing) {
  EXPECT_THAT(LengthClasses::fitted(std::vector<int64_t>(100, 60), 64, 8).all(), ElementsAre(64));
  EXPECT_THAT(LengthClasses::fitted({10, 10, 10, 500, 500, 500}, 500, 8).all(), ElementsAre(16, 500));
}

TEST(LengthClasses, PadLittleOfUsualConversations) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> of_texts(5.5, 0.8);
  std::vector<int64_t> longest;
  for (int batch = 0; batch < 1000; ++batch) {
    int64_t most = 1;
    for (int row = 0; row < 4; ++row) most = std::max(most, std::min<int64_t>(2048, std::llround(of_texts(random))));
    longest.push_back(most);
  }
  const LengthClasses classes = LengthClasses::fitted(longest, 2048, 8);
  EXPECT_LE(classes.all().size(), 8U);
  const auto sum = static_cast<double>(std::accumulate(longest.begin(), longest.end(), int64_t{0}));
  EXPECT_LT(static_cast<double>(padded(classes, longest)), 1.15 * sum);
}

}  // namespace
}  // namespace gputrain::data
