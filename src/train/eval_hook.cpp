#include "gputrain/monitor/format.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::train {

void EvalHook::before_training(Progress& progress) {
  if (parts_.at_start && progress.step == 0) evaluate(progress);
}

void EvalHook::after_step(Progress& progress, const StepResult&, bool asked) {
  if (asked || parts_.reporting.plan.eval.at_step(progress.step)) evaluate(progress);
}

void EvalHook::after_training(Progress& progress, bool stopped) {
  if (!stopped && evaluated_step_ != progress.step) evaluate(progress);
}

bool EvalHook::is_due() const {
  const double seconds = parts_.reporting.plan.eval.seconds;
  return seconds > 0 && since_evaluation_.seconds() >= seconds;
}

void EvalHook::evaluate(Progress& progress) {
  const Stopwatch watch;
  const auto metrics = parts_.evaluator.run(parts_.model, parts_.groups);
  evaluated_step_ = progress.step;
  const auto earlier = progress.best;
  bool is_best = false;
  for (const auto& [name, value] : metrics) {
    progress.metrics[name] = value;
    if (record_best(progress, name, value) && name == "val/loss") is_best = true;
  }
  const auto& reporting = parts_.reporting;
  const double epoch = static_cast<double>(progress.step) / static_cast<double>(reporting.plan.steps_per_epoch);
  reporting.metrics.append({.step = progress.step, .epoch = epoch, .kind = "eval", .message = {}}, metrics);
  std::string text = monitor::grouped(progress.step) + " " + metrics_text(metrics, "val/");
  const auto before = earlier.find("val/loss");
  if (is_best && before != earlier.end()) text += " best (was " + monitor::significant(before->second.value) + ")";
  reporting.console.line("eval", text + " " + monitor::duration(watch.seconds()));
  since_evaluation_.lap();
}

}  // namespace gputrain::train
