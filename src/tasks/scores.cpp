#include "scores.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "gputrain/core/batch.hpp"

namespace gputrain::tasks {
namespace {

/// The two columns, without rows that do not count.
std::array<std::vector<double>, 2> columns_of(const at::Tensor& rows) {
  std::array<std::vector<double>, 2> columns;
  const at::Tensor values = rows.contiguous();
  const double* row = values.const_data_ptr<double>();
  for (int64_t i = 0; i < values.size(0); ++i, row += 2) {
    if (std::isnan(row[1]) || row[1] == kIgnoreIndex) continue;
    columns[0].push_back(row[0]);
    columns[1].push_back(row[1]);
  }
  return columns;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.empty()) return 0;
  const auto n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / n;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / n;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double mean = (static_cast<double>(begin) + static_cast<double>(end - 1)) / 2;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = mean;
  }
  return ranks;
}

}  // namespace

Confusion::Confusion(const at::Tensor& rows) {
  const auto [predicted, truth] = columns_of(rows);
  for (size_t i = 0; i < truth.size(); ++i) {
    const auto guess = static_cast<size_t>(predicted[i]), is = static_cast<size_t>(truth[i]);
    if (classes_.size() <= std::max(guess, is)) classes_.resize(std::max(guess, is) + 1);
    ++classes_[guess].predicted;
    ++classes_[is].true_ones;
    if (guess == is) ++classes_[is].both;
    if (guess == is) ++right_;
    ++samples_;
  }
}

double Confusion::f1() const { return classes_.size() == 2 ? classes_[1].f1() : f1_macro(); }

double Confusion::f1_macro() const {
  double sum = 0, count = 0;
  for (const Hits& one : classes_) {
    if (one.predicted + one.true_ones == 0) continue;
    sum += one.f1();
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

double Confusion::mcc() const {
  double both = 0, predicted = 0, truth = 0;
  for (const Hits& one : classes_) {
    both += one.predicted * one.true_ones;
    predicted += one.predicted * one.predicted;
    truth += one.true_ones * one.true_ones;
  }
  const double all = samples_ * samples_;
  const double below = std::sqrt((all - predicted) * (all - truth));
  return below > 0 ? (right_ * samples_ - both) / below : 0;
}

double pearson(const at::Tensor& rows) {
  const auto [a, b] = columns_of(rows);
  return correlation(a, b);
}

double spearman(const at::Tensor& rows) {
  const auto [a, b] = columns_of(rows);
  return correlation(ranks_of(a), ranks_of(b));
}

}  // namespace gputrain::tasks
