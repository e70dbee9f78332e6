#include "scores.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include <ATen/ops/clamp_min.h>
#include <ATen/ops/div.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "gputrain/data/batch.hpp"

namespace gputrain::tasks {
namespace {

/// Returns the two columns, without rows that do not count.
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

/// Returns ranks; NaN counts as less than any number.
std::vector<double> ranks_of(std::vector<double> values) {
  for (double& value : values)
    if (std::isnan(value)) value = -std::numeric_limits<double>::infinity();
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

Confusion::Confusion(const at::Tensor& rows, int64_t classes) : classes_(static_cast<size_t>(classes)) {
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
  is_binary_ = (classes > 0 ? static_cast<size_t>(classes) : classes_.size()) == 2;
}

double Confusion::of_second_or_mean(Score score) const { return is_binary_ ? (classes_[1].*score)() : mean(score); }

double Confusion::mean(Score score) const {
  double sum = 0, count = 0;
  for (const Hits& one : classes_) {
    if (one.predicted + one.true_ones == 0) continue;
    sum += (one.*score)();
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

double auc(const std::vector<double>& scores, const std::vector<bool>& truth) {
  const std::vector<double> ranks = ranks_of(scores);
  double sum = 0, hits = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!truth[i]) continue;
    sum += ranks[i];
    ++hits;
  }
  const double others = static_cast<double>(ranks.size()) - hits;
  return hits > 0 && others > 0 ? (sum - hits * (hits - 1) / 2) / (hits * others) : 0.5;
}

double auc(const at::Tensor& scores, const at::Tensor& targets) {
  const at::Tensor rows = targets.ne(kIgnoreIndex).nonzero().squeeze(1);
  const at::Tensor classes = targets.index_select(0, rows).contiguous(), used = scores.index_select(0, rows);
  const std::vector<double> truth(classes.const_data_ptr<double>(), classes.const_data_ptr<double>() + classes.numel());
  double sum = 0, count = 0;
  for (int64_t number = scores.size(1) == 2 ? 1 : 0; number < scores.size(1); ++number) {
    std::vector<bool> is_it;
    for (const double each : truth) is_it.push_back(each == static_cast<double>(number));
    const auto hits = std::ranges::count(is_it, true);
    if (hits == 0 || hits == std::ssize(is_it)) continue;
    const at::Tensor column = used.select(1, number).contiguous();
    sum += auc({column.const_data_ptr<double>(), column.const_data_ptr<double>() + column.numel()}, is_it);
    ++count;
  }
  return count > 0 ? sum / count : 0.5;
}

Errors::Errors(const at::Tensor& rows) {
  const int64_t columns = rows.size(1) / 2;
  const at::Tensor counts = at::isnan(rows.narrow(1, columns, columns)).any(1).logical_not().nonzero().squeeze(1);
  const at::Tensor used = rows.index_select(0, counts);
  guesses_ = used.narrow(1, 0, columns);
  truth_ = used.narrow(1, columns, columns);
}

double Errors::mae() const { return truth_.numel() > 0 ? at::sub(guesses_, truth_).abs().mean().item<double>() : 0; }

double Errors::rmse() const {
  return truth_.numel() > 0 ? at::sub(guesses_, truth_).square().mean(0).sqrt().mean().item<double>() : 0;
}

double Errors::r2() const {
  if (truth_.numel() == 0) return 0;
  const at::Tensor left = at::sub(guesses_, truth_).square().sum(0);
  const at::Tensor all = at::sub(truth_, truth_.mean(0)).square().sum(0);
  return at::where(all.gt(0), at::rsub(at::div(left, at::clamp_min(all, 1e-300)), 1), at::zeros_like(all))
      .mean()
      .item<double>();
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
