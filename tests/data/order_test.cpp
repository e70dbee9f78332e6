#include "gputrain/data/order.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace gputrain::data {
namespace {

std::vector<int64_t> whole_order(uint64_t seed, int64_t epoch, int64_t n) {
  const Permutation permutation(seed, epoch, n);
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (int64_t p = 0; p < n; ++p) order[static_cast<size_t>(p)] = permutation(p);
  return order;
}

TEST(Permutation, VisitsEverySampleOnceForAnySize) {
  std::vector<int64_t> sizes(260);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {511, 512, 513, 1000, 4095, 4096, 4097, 60000, 65536, 65537, 1281167});
  for (const int64_t n : sizes) {
    std::vector<int64_t> order = whole_order(11, 3, n);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i) << "n=" << n;
  }
}

TEST(Permutation, StaysInRangeAndDistinctForHugeSizes) {
  for (const int64_t n : {int64_t{1} << 40, (int64_t{1} << 40) + 1, (int64_t{1} << 61) + 12345, INT64_MAX}) {
    const Permutation permutation(5, 0, n);
    std::vector<int64_t> seen;
    for (int64_t p = 0; p < 1000; ++p) seen.push_back(permutation(n - 1 - p));
    for (const int64_t value : seen) ASSERT_TRUE(value >= 0 && value < n);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end()) << "n=" << n;
  }
}

TEST(Permutation, DrawsEveryOrderEquallyOften) {
  for (const int64_t n : {2, 3, 4, 5}) {
    std::map<std::vector<int64_t>, int> counts;
    int64_t orders = 1;
    for (int64_t i = 2; i <= n; ++i) orders *= i;
    constexpr int kDraws = 24000;
    for (int draw = 0; draw < kDraws; ++draw) ++counts[whole_order(static_cast<uint64_t>(draw / 100), draw % 100, n)];
    ASSERT_EQ(std::ssize(counts), orders) << "n=" << n;
    const double expected = static_cast<double>(kDraws) / static_cast<double>(orders);
    double chi_square = 0;
    for (const auto& [order, count] : counts) chi_square += (count - expected) * (count - expected) / expected;
    const double freedom = static_cast<double>(orders - 1);
    EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom) + 5) << "n=" << n;
  }
}

TEST(Permutation, SpreadsPositionsEvenlyOverSamples) {
  constexpr int64_t kSize = 100003, kCells = 32;
  std::vector<int> counts(kCells * kCells);  // joint histogram of position and value
  const Permutation permutation(42, 7, kSize);
  for (int64_t p = 0; p < kSize; ++p)
    ++counts[static_cast<size_t>(p * kCells / kSize * kCells + permutation(p) * kCells / kSize)];
  const double expected = static_cast<double>(kSize) / (kCells * kCells);
  double chi_square = 0;
  for (const int count : counts) chi_square += (count - expected) * (count - expected) / expected;
  constexpr double kFreedom = (kCells - 1) * (kCells - 1);
  EXPECT_LT(chi_square, kFreedom + 5 * std::sqrt(2 * kFreedom));
  EXPECT_GT(chi_square, kFreedom - 5 * std::sqrt(2 * kFreedom));
}

TEST(Permutation, KeepsFewFixedPointsAndNeighbours) {
  int fixed = 0, neighbours = 0;
  constexpr int kOrders = 400;
  for (int seed = 0; seed < kOrders; ++seed) {
    const std::vector<int64_t> order = whole_order(static_cast<uint64_t>(seed), 0, 500);
    for (size_t i = 0; i < order.size(); ++i) fixed += order[i] == static_cast<int64_t>(i);
    for (size_t i = 1; i < order.size(); ++i) neighbours += order[i] == order[i - 1] + 1;
  }
  EXPECT_NEAR(fixed, kOrders, 5 * std::sqrt(kOrders));  // by chance, one per order
  EXPECT_NEAR(neighbours, kOrders, 5 * std::sqrt(kOrders));
}

TEST(Permutation, ChangesOnlyWithSeedAndEpoch) {
  EXPECT_EQ(whole_order(1, 2, 1000), whole_order(1, 2, 1000));
  EXPECT_NE(whole_order(1, 2, 1000), whole_order(1, 3, 1000));
  EXPECT_NE(whole_order(1, 2, 1000), whole_order(2, 2, 1000));
}

// Do not change the expected values: runs resumed from older versions would get another data order.
TEST(Permutation, KeepsTheOrderOfEarlierVersions) {
  EXPECT_EQ(whole_order(1337, 0, 10), (std::vector<int64_t>{2, 6, 0, 5, 1, 8, 9, 7, 4, 3}));
  const Permutation of_a_loader = order_of_epoch(1337, 2, 10);
  std::vector<int64_t> order;
  for (int64_t p = 0; p < 10; ++p) order.push_back(of_a_loader(p));
  EXPECT_EQ(order, (std::vector<int64_t>{9, 7, 0, 5, 2, 6, 3, 1, 8, 4}));
}

}  // namespace
}  // namespace gputrain::data
