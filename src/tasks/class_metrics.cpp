#include "class_metrics.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ops/cat.h>

#include "scores.hpp"

namespace gputrain::tasks {
namespace {

constexpr const char* kAuc = "auc";
constexpr const char* kProbabilities = "probabilities";

/// Computes auc from rows of probabilities, each with the true class behind them; without a row there is no column.
double auc_of(const at::Tensor& rows) {
  return rows.size(0) == 0 ? 0.5 : auc(rows.narrow(1, 0, rows.size(1) - 1), rows.select(1, -1));
}

}  // namespace

ClassMetrics::ClassMetrics(std::string rows, const config::Auto<bool>& measures_auc, const TaskRequest& request)
    : rows_(std::move(rows)), classes_(request.layout.outputs) {
  constexpr int64_t kManyClasses = 100;
  measures_auc_ = classes_ > 1 && measures_auc.value.value_or(classes_ <= kManyClasses);
}

std::vector<Metric> ClassMetrics::of_rows(const std::string& rows, int64_t classes) {
  const auto confusion = [=](const Totals& totals) { return Confusion(totals.rows.at(rows).narrow(1, 0, 2), classes); };
  return {{.name = "f1", .finish = [=](const Totals& t) { return confusion(t).f1(); }},
          {.name = "precision", .finish = [=](const Totals& t) { return confusion(t).precision(); }},
          {.name = "recall", .finish = [=](const Totals& t) { return confusion(t).recall(); }},
          {.name = kAuc, .finish = [](const Totals& t) { return auc_of(t.rows.at(kProbabilities)); }}};
}

std::vector<Metric> ClassMetrics::chosen(std::vector<Metric> metrics) const {
  for (Metric& one : of_rows(rows_, classes_)) {
    const auto found = std::ranges::find(metrics, one.name, &Metric::name);
    if (found != metrics.end()) found->finish = std::move(one.finish);
  }
  if (!measures_auc_) std::erase_if(metrics, [](const Metric& metric) { return metric.name == kAuc; });
  return metrics;
}

void ClassMetrics::add_to(Tally::Parts& parts) const {
  if (measures_auc_) parts.rows.push_back({.name = kProbabilities, .columns = 0});
}

void ClassMetrics::append(const at::Tensor& probabilities, const at::Tensor& targets, Tally& tally) const {
  tally.append(kProbabilities, at::cat({probabilities, targets.unsqueeze(1).to(probabilities.scalar_type())}, 1));
}

double mean_loss(const Totals& totals) {
  const auto weight = totals.sums.find("loss_weight");
  const double divisor = weight != totals.sums.end() ? weight->second : totals.weight;
  return totals.sums.at("loss") / (divisor > 0 ? divisor : 1);
}

}  // namespace gputrain::tasks
