#include <algorithm>

#include <fmt/format.h>

#include "gputrain/monitor/format.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::train {

std::string metric_text(const tasks::Metric& metric, double value) {
  return metric.unit == "%" ? fmt::format("{:.2f}%", value) : monitor::fixed(value) + metric.unit;
}

std::vector<monitor::Column> metric_columns(const monitor::Metrics& metrics, const std::string& prefix,
                                            const std::string& main) {
  constexpr size_t kWidestValue = 7;  // "4.29e-4", "100.00%"
  std::vector<const tasks::Metric*> shown;
  for (const tasks::Metric& metric : tasks::catalog().metrics())
    if (metrics.contains(prefix + metric.name)) shown.push_back(&metric);
  std::ranges::stable_partition(shown, [&](const tasks::Metric* metric) { return prefix + metric->name == main; });
  std::vector<monitor::Column> columns;
  for (const tasks::Metric* metric : shown) {
    const std::string name = (columns.empty() ? prefix : "") + (metric->label.empty() ? metric->name : metric->label);
    const size_t unit = metric->unit == "%" ? 0 : metric->unit.size();
    columns.push_back({.text = name + " " + metric_text(*metric, metrics.at(prefix + metric->name)),
                       .width = name.size() + 1 + kWidestValue + unit,
                       .dispensable = columns.empty() ? 0 : 10 + static_cast<int>(columns.size()),
                       .colour = columns.empty() ? "1" : ""});
  }
  return columns;
}

}  // namespace gputrain::train
