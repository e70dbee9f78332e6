#include "gputrain/job/sweep_spec.hpp"

#include <algorithm>
#include <set>

#include "gputrain/tasks/task.hpp"

namespace gputrain::app {

using config::Change;

namespace {

void check_parameter(const SweepParameter& parameter, config::SpecIssues& issues) {
  const bool has_range = parameter.min && parameter.max;
  if (parameter.values.empty() == !has_range || (parameter.min.has_value() != parameter.max.has_value())) {
    issues.add("key", "needs either values, or min and max", "values: [0.1, 0.01], or min: 0.001, max: 0.1");
  } else if (has_range && *parameter.min >= *parameter.max) {
    issues.add("max", "is not above min");
  } else if (has_range && parameter.scale == "log" && *parameter.min <= 0) {
    issues.add("min", "must be above 0 on a log scale");
  }
}

void check_sweep(const SweepSpec& spec, config::SpecIssues& issues) {
  const bool is_grid = spec.method == "grid";
  if (spec.parameters.empty())
    issues.add("parameters", "there is nothing to vary", "[{key: optimizer.lr, values: [0.1, 0.01]}]");
  if (is_grid && spec.trials)
    issues.add("trials", "a grid has as many trials as its values have combinations", "leave trials out");
  if (!is_grid && !spec.trials) issues.add("trials", spec.method + " needs a number of trials", "trials: 20");
  const bool has_range = std::ranges::any_of(spec.parameters, [](const auto& one) { return one.values.empty(); });
  if (is_grid && has_range)
    issues.add("parameters", "a grid needs the values of each parameter, not a range", "values, or method: random");
  std::set<std::string> keys;
  for (const SweepParameter& parameter : spec.parameters) {
    if (!keys.insert(parameter.key).second) issues.add("parameters", "'" + parameter.key + "' is varied twice");
    if (parameter.key.starts_with("sweep") || parameter.key == "output_dir" || parameter.key == "name")
      issues.add("parameters", "'" + parameter.key + "' belongs to the sweep, not to a trial");
  }
  const size_t slash = spec.metric.find('/');
  if (slash == std::string::npos || spec.metric.substr(0, slash) != "val" || tasks::find_metric(spec.metric) == nullptr)
    issues.add("metric", "no evaluation measures '" + spec.metric + "'",
               "val/loss, or val/ and another metric of the task");
}

}  // namespace

void SweepParameter::describe(config::Description<SweepParameter>& d) {
  d.summary("a key that trials vary");
  d.key("key", &SweepParameter::key, "the key of the job, such as optimizer.lr").required().change(Change::safe);
  d.key("values", &SweepParameter::values, "the values to choose from; lists are written in quotes")
      .change(Change::safe);
  d.key("min", &SweepParameter::min, "the lowest number of a range").change(Change::safe);
  d.key("max", &SweepParameter::max, "the highest number of a range").change(Change::safe);
  d.key("scale", &SweepParameter::scale, "log: every power of ten of the range is as likely as another")
      .choices({"linear", "log"})
      .change(Change::safe);
  d.key("integer", &SweepParameter::integer, "the range has whole numbers only").change(Change::safe);
  d.check(check_parameter);
}

void SweepSpec::describe(config::Description<SweepSpec>& d) {
  d.summary("a search for good settings: `gputrain sweep` runs trials of the job");
  d.key("method", &SweepSpec::method,
        "grid: all combinations of the values; random: draws each trial from the seed; asha: random, and ends trials "
        "early that are not among the best (Li et al., arXiv:1810.05934)")
      .choices({"grid", "random", "asha"})
      .change(Change::safe);
  d.key("trials", &SweepSpec::trials, "random, asha: how many trials").range(1, 100000).change(Change::safe);
  d.key("metric", &SweepSpec::metric, "what is best: the best of a trial's evaluations counts").change(Change::safe);
  d.key("parameters", &SweepSpec::parameters, "what the trials vary").change(Change::safe);
  d.key("parallel", &SweepSpec::parallel,
        "trials side by side; auto: one on each GPU of this machine, or one on its CPU")
      .range(1, 1024)
      .change(Change::safe);
  d.key("first_rung", &SweepSpec::first_rung,
        "asha: evaluations before a trial is compared for the first time; then after `reduction` times as many, and so "
        "on")
      .at_least(1)
      .change(Change::safe);
  d.key("reduction", &SweepSpec::reduction, "asha: one of so many trials goes on beyond a comparison")
      .range(2, 1000)
      .change(Change::safe);
  d.check(check_sweep);
}

}  // namespace gputrain::app
