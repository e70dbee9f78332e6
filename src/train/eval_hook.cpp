#include <cmath>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/numbers.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::train {
namespace {

/// Counts evaluations that did not improve by more than `min_delta`. Starts again if the metric changes.
void count_gain(Progress& progress, const std::string& metric, double value, double min_delta) {
  const std::string before = std::exchange(progress.gained_metric, metric);
  if (!before.empty() && before != metric) progress.gained.reset();
  const double better = progress.gained
                            ? (tasks::smaller_is_better(metric) ? *progress.gained - value : value - *progress.gained)
                            : std::numeric_limits<double>::infinity();
  ++progress.evaluations_without_gain;
  if (!std::isfinite(value) || better <= min_delta) return;
  progress.gained = value;
  progress.evaluations_without_gain = 0;
}

}  // namespace

bool is_patience_over(const std::optional<EarlyStoppingSpec>& spec, const Progress& progress) noexcept {
  return spec && progress.evaluations_without_gain >= spec->patience;
}

/// Evaluates if an evaluation is missing. Takes the elapsed time from the checkpoint, because it is then equal on all
/// ranks. After a rollback it is not used.
void EvalHook::before_training(Progress& progress) {
  const Cadence& cadence = parts_.reporting.plan.eval;
  bool is_due = cadence.at_step(progress.step);
  if (!std::exchange(has_begun_, true)) {
    seconds_before_ = progress.seconds_since_evaluation;
    since_evaluation_.lap();
    is_due = is_due || (cadence.seconds > 0 && seconds_before_ >= cadence.seconds);
  }
  const bool is_missing = is_due && !progress.is_evaluated();
  if (progress.step == 0 ? parts_.at_start : is_missing) evaluate(progress);
}

Stop EvalHook::after_step(Progress& progress, const StepResult&, bool requested) {
  progress.seconds_since_evaluation = seconds_since_evaluation();
  return will_act(progress, requested) ? evaluate(progress) : Stop::none;
}

bool EvalHook::will_act(const Progress& progress, bool requested) const {
  return requested || parts_.reporting.plan.eval.at_step(progress.step);
}

Stop EvalHook::after_training(Progress& progress, bool stopped) {
  if (stopped || progress.is_evaluated()) return Stop::none;
  const Stop stop = evaluate(progress);
  return stop == Stop::early_stop ? Stop::none : stop;  // training has already ended for another reason
}

bool EvalHook::is_due() const {
  const double seconds = parts_.reporting.plan.eval.seconds;
  return seconds > 0 && seconds_since_evaluation() >= seconds;
}

Stop EvalHook::evaluate(Progress& progress) {
  const Stopwatch watch;
  parts_.groups.enter("in the evaluation after step", progress.step);
  StopPoll poll(parts_.groups, parts_.own_stop);
  tasks::Totals totals;
  parts_.between_steps([&] { totals = parts_.evaluator.totals(parts_.model, parts_.groups, poll); });
  if (const Stop stop = poll.finish(); stop != Stop::none) return stop;
  const monitor::Metrics metrics = parts_.evaluator.metrics_of(totals);
  tell_details(progress.step, totals);
  progress.eval_seconds += watch.seconds();
  progress.evaluated_step = progress.step;
  progress.evaluates_anew = false;
  seconds_before_ = progress.seconds_since_evaluation = 0;
  const auto earlier = progress.best;
  bool is_best = false;
  for (const auto& [name, value] : metrics) {
    progress.metrics[name] = value;
    if (record_best(progress, name, value) && name == parts_.best_metric) is_best = true;
  }
  const auto before = earlier.find(parts_.best_metric);
  const auto columns =
      line_columns(progress.step, metrics, watch.seconds(),
                   is_best && before != earlier.end() ? std::optional(before->second.value) : std::nullopt);
  parts_.reporting.recorder.log({.step = progress.step,
                                 .epoch = parts_.reporting.plan.epochs_in(progress.step),
                                 .kind = "eval",
                                 .metrics = metrics,
                                 .label = "eval",
                                 .text = monitor::joined(columns),
                                 .columns = columns});
  since_evaluation_.lap();
  if (const auto found = metrics.find(parts_.best_metric); found != metrics.end()) {
    const auto& [name, value] = *found;
    count_gain(progress, name, value, parts_.early_stopping ? parts_.early_stopping->min_delta : 0);
    parts_.follow({.metric = name, .value = value, .smaller_is_better = tasks::smaller_is_better(name)},
                  progress.lr_feedback);
  }
  return is_patience_over(parts_.early_stopping, progress) ? Stop::early_stop : Stop::none;
}

/// Returns the columns of an evaluation's line. `best_before`: the best value so far, if this one is better.
std::vector<monitor::Column> EvalHook::line_columns(int64_t step, const monitor::Metrics& metrics, double seconds,
                                                    std::optional<double> best_before) const {
  constexpr size_t kBestWidth = 18;  // "best (was 100.00%)"
  const Plan& plan = parts_.reporting.plan;
  const tasks::Metric* watched = tasks::find_metric(parts_.best_metric);
  auto columns = metric_columns(metrics, "val/", parts_.best_metric);
  columns.insert(columns.begin(),
                 {grouped(step), grouped(plan.is_time_limited() ? 999999 : plan.total_steps).size(), 0});
  columns.push_back({monitor::duration(seconds), 6, 2});
  const bool is_best = best_before && watched != nullptr;
  columns.push_back({is_best ? "best (was " + metric_text(*watched, *best_before) + ")" : "", kBestWidth, 1, "32"});
  return columns;
}

void EvalHook::tell_details(int64_t step, const tasks::Totals& totals) const {
  if (parts_.groups.rank() != 0) return;
  auto details = parts_.evaluator.details_of(totals);
  if (details.is_null()) return;
  details["step"] = step;
  parts_.on_details(details);
}

}  // namespace gputrain::train
