#include "tensor_histograms.hpp"

#include <cmath>
#include <numeric>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace gputrain::train {
namespace {

monitor::Histogram histogram(const std::vector<at::Tensor>& parts, double factor = 1) {
  std::vector<Spread> all(1);
  for (const at::Tensor& part : parts) all[0].add(spreads_of({part})[0]);
  at::Tensor counts = counts_of({parts[0]}, all, at::kCPU);
  for (size_t i = 1; i < parts.size(); ++i) counts = counts.add(counts_of({parts[i]}, all, at::kCPU));
  return histogram_of(all[0], counts.select(0, 0), factor);
}

double count(const monitor::Histogram& histogram) {
  return std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0);
}

// More values than a float counts exactly, most of them in one bin.
TEST(TensorHistograms, CountEveryValueOfALargeTensor) {
  constexpr int64_t kMany = (int64_t{1} << 24) + 3;
  const at::Tensor values = at::full({kMany}, 0.5f);
  values.select(0, 7).fill_(-1.5);
  values.select(0, kMany - 1).fill_(2.5);
  const auto found = histogram({values});
  EXPECT_EQ(found.least, -1.5);
  EXPECT_EQ(found.most, 2.5);
  EXPECT_EQ(count(found), kMany);
  EXPECT_EQ(found.counts[32], kMany - 2);
  EXPECT_EQ(found.counts.back(), 1);
  EXPECT_EQ(found.sum, static_cast<double>(kMany - 2) * 0.5 + 1);
  EXPECT_NEAR(found.sum_of_squares / (static_cast<double>(kMany - 2) * 0.25 + 8.5), 1, 1e-12);
}

TEST(TensorHistograms, AreThoseOfTheWholeWhereRanksHaveParts) {
  const at::Tensor values = at::arange(100, at::kFloat).sub(30);
  const auto whole = histogram({values}),
             shared = histogram({values.slice(0, 0, 0), values.slice(0, 0, 17), values.slice(0, 17)});
  EXPECT_EQ(shared.counts, whole.counts);
  EXPECT_EQ(shared.sum, whole.sum);
  EXPECT_EQ(shared.least, -30);
  EXPECT_EQ(shared.most, 69);
}

TEST(TensorHistograms, ScaleWithTheFactor) {
  const auto found = histogram({at::tensor({-4.0, 2.0})}, 0.5);
  EXPECT_EQ(found.least, -2);
  EXPECT_EQ(found.most, 1);
  EXPECT_EQ(found.sum, -1);
  EXPECT_NEAR(found.sum_of_squares, 5, 1e-12);
}

TEST(TensorHistograms, PutEqualValuesIntoTheFirstBin) {
  const auto found = histogram({at::full({5}, 3.0f)});
  EXPECT_EQ(found.counts[0], 5);
  EXPECT_EQ(count(found), 5);
}

TEST(TensorHistograms, HaveNoBinsForValuesThatAreNotFiniteOrNotThere) {
  for (const float odd : {INFINITY, -INFINITY, NAN}) {
    const at::Tensor values = at::tensor({1.0f, odd, 2.0f});
    const auto spreads = spreads_of({values, at::tensor({1.0f}), values.slice(0, 0, 0)});
    EXPECT_FALSE(spreads[0].has_bins());
    EXPECT_TRUE(spreads[1].has_bins());
    EXPECT_FALSE(spreads[2].has_bins());
    EXPECT_EQ(counts_of({values}, {spreads[0]}, at::kCPU).sum().item<double>(), 0);
  }
}

}  // namespace
}  // namespace gputrain::train
