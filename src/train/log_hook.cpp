#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "gputrain/core/numbers.hpp"
#include "gputrain/core/process.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::train {

using monitor::Column;
using monitor::compact;
using monitor::duration;
using monitor::fixed;

namespace {

/// Order in which columns go where a terminal is too narrow.
namespace dispensable {
enum : int { count, loss, eta, percent, note, rate, cost, time, lr, norm, utilization, experts };
}

constexpr size_t kValueWidth = 7;  // "4.29e-4"

std::string right_aligned(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

/// Returns a share in percent, rounded down: 100.0% is the end.
std::string percent(double share) { return fmt::format("{:.1f}%", std::floor(1000 * share) / 10); }

/// Returns the smallest and the largest share of an expert; empty: the model has none.
std::string text_of_experts(const monitor::Metrics& line) {
  const auto least = line.find("train/expert_share_min"), most = line.find("train/expert_share_max");
  if (least == line.end() || most == line.end()) return "";
  return fmt::format("experts {:.1f}-{:.1f}%", 100 * least->second, 100 * most->second);
}

}  // namespace

/// Shows that something goes on before the first step, which may take long.
void LogHook::before_step(const Progress& progress) {
  if (first_step_seconds_ == 0)
    reporting_.recorder.status(
        {.label = "step", .share = share_done(progress), .columns = {count_column(progress), {"first step"}}});
}

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
  left_.note_step(progress);
  const bool may_read = device_.is_cpu() && groups_.alone();
  if (may_read) shown_loss_ = interval_.loss_sum.item<double>() / divisor_of_loss(interval_.weight);
  if (requested || reporting_.plan.log.at_step(progress.step)) {
    write_line(progress, result);
    return Stop::none;
  }
  reporting_.recorder.status(live_line(progress));
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
  const double loss_sum = result.loss_sum.item<double>();  // synchronises the device
  if (groups_.alone()) shown_loss_ = loss_sum / divisor_of_loss(result.weight);
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
  line["time/left_seconds"] = left_.seconds(progress);
  line.merge(more_metrics_());
  shown_loss_ = loss;
  const auto columns = line_columns(
      progress,
      {.seconds_per_step = seconds / static_cast<double>(interval_.steps), .rate = rate, .utilization = utilization},
      line);
  reporting_.recorder.log({.step = progress.step,
                           .epoch = reporting_.plan.epochs_in(progress.step),
                           .kind = "train",
                           .metrics = std::move(line),
                           .label = "step",
                           .text = monitor::joined(columns),
                           .columns = columns});
  begin_interval(progress);
}

std::vector<Column> LogHook::line_columns(const Progress& progress, const Speed& speed,
                                          const monitor::Metrics& line) const {
  const double norm = progress.metrics.at("train/grad_norm");
  std::vector<Column> columns{count_column(progress), percent_column(progress)};
  const auto add = [&](const std::string& name, const std::string& value, size_t width, int goes) {
    columns.push_back({name + " " + value, name.size() + 1 + width, goes});
  };
  add("loss", fixed(progress.metrics.at("train/loss")), kValueWidth, dispensable::loss);
  columns.back().colour = "1";
  add("gnorm", fixed(norm), kValueWidth, dispensable::norm);
  add("lr", monitor::significant(progress.metrics.at("train/lr")), kValueWidth, dispensable::lr);
  columns.push_back({right_aligned(duration(speed.seconds_per_step), 5), 5, dispensable::time});
  columns.push_back(rate_column(speed.rate));
  if (speed.utilization) add("mfu", percent(*speed.utilization), 5, dispensable::utilization);
  if (const std::string experts = text_of_experts(line); !experts.empty())
    columns.push_back({experts, 18, dispensable::experts});
  columns.push_back(eta_column(progress));
  if (!std::isfinite(norm)) columns.push_back({"no update", 0, dispensable::note});
  return columns;
}

/// Returns the line that is redrawn after each step. It does not read a GPU: its loss is then that of the line before.
monitor::LiveLine LogHook::live_line(const Progress& progress) const {
  const bool is_text = reporting_.plan.tokens_per_step > 0;
  const std::string loss = shown_loss_ ? fixed(*shown_loss_) : "-";
  monitor::LiveLine line{
      .label = "step",
      .share = share_done(progress),
      .columns = {percent_column(progress), count_column(progress),
                  Column{"loss " + loss, 5 + kValueWidth, dispensable::loss, "1"},
                  rate_column(is_text ? left_.tokens_per_second() : left_.samples_per_second()), eta_column(progress)}};
  if (cost_) line.columns.push_back({"cost " + cost_(), 0, dispensable::cost});
  return line;
}

Column LogHook::count_column(const Progress& progress) const {
  const auto& plan = reporting_.plan;
  if (plan.is_time_limited()) return {grouped(progress.step), 7, dispensable::count};
  const std::string all = grouped(plan.total_steps);
  return {grouped(progress.step) + "/" + all, 2 * all.size() + 1, dispensable::count};
}

Column LogHook::percent_column(const Progress& progress) const {
  return {right_aligned(percent(share_done(progress)), 6), 6, dispensable::percent};
}

Column LogHook::rate_column(double rate) const {
  return {right_aligned(compact(rate), 5) + (reporting_.plan.tokens_per_step > 0 ? " tok/s" : " samples/s"), 0,
          dispensable::rate};
}

/// Returns the time that the run still takes; no text at its end.
Column LogHook::eta_column(const Progress& progress) const {
  const double left = left_.seconds(progress);
  const bool is_told = left > 0 && (progress.step < reporting_.plan.total_steps || left >= 1);
  return {is_told ? "eta " + duration(left) : "", 10, dispensable::eta};
}

/// Returns the part of the run that is done, by the limit that is nearest.
double LogHook::share_done(const Progress& progress) const {
  const auto& plan = reporting_.plan;
  const double by_steps =
      plan.is_time_limited() ? 0 : static_cast<double>(progress.step) / static_cast<double>(plan.total_steps);
  const double by_time = plan.max_seconds > 0 ? progress.train_seconds / plan.max_seconds : 0;
  return std::min(1.0, std::max(by_steps, by_time));
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
