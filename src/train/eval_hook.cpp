#include "gputrain/monitor/format.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::train {
namespace {

/// The loss is told without its name, as the first of the line.
std::string was_text(const std::string& metric, double value) {
  return metric == "val/loss" ? monitor::significant(value) : metrics_text({{metric, value}}, "val/");
}

}  // namespace

void EvalHook::before_training(Progress& progress) {
  const bool is_missing = parts_.reporting.plan.eval.at_step(progress.step) && progress.evaluated_step != progress.step;
  if (progress.step == 0 ? parts_.at_start : is_missing) evaluate(progress);
}

Stop EvalHook::after_step(Progress& progress, const StepResult&, bool asked) {
  return will_act(progress, asked) ? evaluate(progress) : Stop::none;
}

bool EvalHook::will_act(const Progress& progress, bool asked) const {
  return asked || parts_.reporting.plan.eval.at_step(progress.step);
}

Stop EvalHook::after_training(Progress& progress, bool stopped) {
  return stopped || progress.evaluated_step == progress.step ? Stop::none : evaluate(progress);
}

bool EvalHook::is_due() const {
  const double seconds = parts_.reporting.plan.eval.seconds;
  return seconds > 0 && since_evaluation_.seconds() >= seconds;
}

Stop EvalHook::evaluate(Progress& progress) {
  const Stopwatch watch;
  parts_.groups.enter("in the evaluation after step", progress.step);
  StopPoll poll(parts_.groups, parts_.own_stop);
  const auto metrics = parts_.evaluator.run(parts_.model, parts_.groups, poll);
  if (const Stop stop = poll.finish(); stop != Stop::none) return stop;
  progress.evaluated_step = progress.step;
  const auto earlier = progress.best;
  bool is_best = false;
  for (const auto& [name, value] : metrics) {
    progress.metrics[name] = value;
    if (record_best(progress, name, value) && name == parts_.best_metric) is_best = true;
  }
  const auto& reporting = parts_.reporting;
  const double epoch = static_cast<double>(progress.step) / static_cast<double>(reporting.plan.steps_per_epoch);
  reporting.metrics.append({.step = progress.step, .epoch = epoch, .kind = "eval", .message = {}}, metrics);
  std::string text = monitor::grouped(progress.step) + " " + metrics_text(metrics, "val/");
  const auto before = earlier.find(parts_.best_metric);
  if (is_best && before != earlier.end()) text += " best (was " + was_text(before->first, before->second.value) + ")";
  reporting.console.line("eval", text + " " + monitor::duration(watch.seconds()));
  since_evaluation_.lap();
  return Stop::none;
}

}  // namespace gputrain::train
