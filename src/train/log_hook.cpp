#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include "gputrain/core/numbers.hpp"
#include "gputrain/core/process.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::train {

using monitor::compact;
using monitor::duration;
using monitor::significant;

std::string metrics_text(const monitor::Metrics& metrics, const std::string& prefix) {
  std::string text;
  for (const tasks::Metric& metric : tasks::catalog().metrics()) {
    const auto found = metrics.find(prefix + metric.name);
    if (found == metrics.end()) continue;
    text += text.empty() ? prefix : " ";
    text += (metric.label.empty() ? metric.name : metric.label) + " " + significant(found->second) + metric.unit;
  }
  return text;
}

namespace {

std::string text_of_experts(const monitor::Metrics& line) {
  const auto least = line.find("train/expert_share_min"), most = line.find("train/expert_share_max");
  if (least == line.end() || most == line.end()) return "";
  const auto percent = [](double share) { return significant(std::round(1000 * share) / 10); };
  return " experts " + percent(least->second) + "-" + percent(most->second) + "%";
}

}  // namespace

Stop LogHook::after_step(Progress& progress, const StepResult& result, bool requested) {
  if (first_step_seconds_ == 0) note_first_step(progress, result);
  if (!interval_.loss_sum.defined()) interval_.loss_sum = at::zeros_like(result.loss_sum);
  if (groups_.mesh().counts_loss(groups_.rank())) interval_.loss_sum.add_(result.loss_sum);
  interval_.weight += result.weight;
  ++interval_.steps;
  last_ = result;
  end_seconds_ = progress.train_seconds;
  end_samples_ = progress.usage.samples;
  end_tokens_ = progress.tokens;
  if (requested || reporting_.plan.log.at_step(progress.step)) {
    write_line(progress, result);
    return Stop::none;
  }
  const double seconds = (progress.train_seconds - interval_.begin_seconds) / static_cast<double>(interval_.steps);
  const std::string total = reporting_.plan.is_time_limited() ? "" : "/" + grouped(reporting_.plan.total_steps);
  reporting_.recorder.status("step    " + grouped(progress.step) + total + " " + duration(seconds) + " per step");
  return Stop::none;
}

Stop LogHook::after_training(Progress& progress, bool stopped) {
  if (!stopped && interval_.steps > 0 && last_) write_line(progress, *last_);
  return Stop::none;
}

bool LogHook::will_act(const Progress& progress, bool requested) const {
  return requested || first_step_seconds_ == 0 || reporting_.plan.log.at_step(progress.step);
}

bool LogHook::is_due() const {
  return reporting_.plan.log.seconds > 0 && since_line_.seconds() >= reporting_.plan.log.seconds;
}

void LogHook::note_first_step(const Progress& progress, const StepResult& result) {
  result.loss_sum.item<double>();  // synchronises the device
  first_step_seconds_ = seconds_since_process_start();
  first_step_end_ = progress.train_seconds;
  first_samples_ = progress.usage.samples;
  first_tokens_ = progress.tokens;
}

void LogHook::write_line(Progress& progress, const StepResult& result) {
  at::Tensor sum = interval_.loss_sum.clone();
  groups_.tensors().all_reduce_sum(sum, "training loss").wait();
  const double loss = sum.item<double>() / divisor_of_loss(interval_.weight);
  const double seconds = std::max(1e-9, progress.train_seconds - interval_.begin_seconds);
  const bool is_text = reporting_.plan.tokens_per_step > 0;
  const double rate = static_cast<double>(is_text ? progress.tokens - interval_.begin_tokens
                                                  : progress.usage.samples - interval_.begin_samples) /
                      seconds;
  const auto utilization =
      flops_.utilization(static_cast<double>(progress.usage.samples - interval_.begin_samples) / seconds);
  progress.metrics["train/loss"] = loss;
  progress.metrics["train/grad_norm"] = result.gradient_norm.item<double>();
  progress.metrics["train/lr"] = result.lr;
  monitor::Metrics line;
  for (const char* name : {"train/loss", "train/grad_norm", "train/lr"}) line[name] = progress.metrics[name];
  line[is_text ? "train/tokens_per_second" : "train/samples_per_second"] = rate;
  if (utilization) line["train/mfu"] = *utilization;
  line["time/step_seconds"] = seconds / static_cast<double>(interval_.steps);
  line["time/train_seconds_total"] = progress.train_seconds;
  line["time/eval_seconds_total"] = progress.eval_seconds;
  line["time/save_seconds_total"] = progress.save_seconds;
  line.merge(more_metrics_());
  std::string text = line_text(progress, seconds / static_cast<double>(interval_.steps), rate, utilization);
  text += text_of_experts(line);
  reporting_.recorder.log(
      {.step = progress.step,
       .epoch = reporting_.plan.epochs_in(progress.step),
       .kind = "train",
       .metrics = std::move(line),
       .label = "step",
       .text = std::move(text)});
  begin_interval(progress);
}

std::string LogHook::line_text(const Progress& progress, double seconds_per_step, double rate,
                               std::optional<double> utilization) const {
  const auto& plan = reporting_.plan;
  std::string text = grouped(progress.step);
  if (!plan.is_time_limited()) {
    const double share = 100 * static_cast<double>(progress.step) / static_cast<double>(plan.total_steps);
    text += "/" + grouped(plan.total_steps) + " " + significant(std::floor(share * 10) / 10) + "%";
  }
  const double norm = progress.metrics.at("train/grad_norm");
  text += " loss " + significant(progress.metrics.at("train/loss")) + " gnorm " + significant(norm) +
          (std::isfinite(norm) ? "" : " (no update)") + " lr " + significant(progress.metrics.at("train/lr")) + " " +
          duration(seconds_per_step) + " " + compact(rate) + (plan.tokens_per_step > 0 ? " tok/s" : " samples/s");
  if (utilization) text += " mfu " + significant(std::floor(*utilization * 1000) / 10) + "%";
  const double left = plan.seconds_left(progress.step, progress.train_seconds, seconds_per_step);
  return left > 0 ? text + " eta " + duration(left) : text;
}

void LogHook::begin_interval(const Progress& progress) {
  if (interval_.loss_sum.defined()) interval_.loss_sum.zero_();
  interval_.weight = 0;
  interval_.steps = 0;
  interval_.begin_seconds = progress.train_seconds;
  interval_.begin_samples = progress.usage.samples;
  interval_.begin_tokens = progress.tokens;
  since_line_.lap();
}

nlohmann::json LogHook::state() {
  if (!interval_.loss_sum.defined()) return nullptr;
  at::Tensor sum = interval_.loss_sum.clone();
  groups_.tensors().all_reduce_sum(sum, "training loss").wait();
  return {{"loss_sum", sum.item<double>()},
          {"weight", interval_.weight},
          {"steps", interval_.steps},
          {"begin_seconds", interval_.begin_seconds},
          {"begin_samples", interval_.begin_samples},
          {"begin_tokens", interval_.begin_tokens}};
}

void LogHook::restore(const nlohmann::json& state) {
  if (!state.is_object()) return;
  const auto& saved = state.at("loss_sum");
  const double whole = saved.is_null() ? std::numeric_limits<double>::quiet_NaN() : saved.get<double>();
  const double sum = groups_.rank() == 0 ? whole : 0.0;
  interval_.loss_sum = at::tensor(sum, at::TensorOptions().dtype(at::kDouble).device(device_));
  state.at("weight").get_to(interval_.weight);
  state.at("steps").get_to(interval_.steps);
  state.at("begin_seconds").get_to(interval_.begin_seconds);
  state.at("begin_samples").get_to(interval_.begin_samples);
  state.at("begin_tokens").get_to(interval_.begin_tokens);
}

void LogHook::pass_over(const Progress& restored, const Progress& reached) {
  interval_.begin_seconds += reached.train_seconds - restored.train_seconds;
  first_samples_ -= reached.usage.samples - restored.usage.samples;
  first_tokens_ -= reached.tokens - restored.tokens;
}

double LogHook::samples_per_second() const noexcept {
  const double seconds = end_seconds_ - first_step_end_;
  return seconds > 0 ? static_cast<double>(end_samples_ - first_samples_) / seconds : 0;
}

double LogHook::tokens_per_second() const noexcept {
  const double seconds = end_seconds_ - first_step_end_;
  return seconds > 0 ? static_cast<double>(end_tokens_ - first_tokens_) / seconds : 0;
}

}  // namespace gputrain::train
