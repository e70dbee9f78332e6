#include "gputrain/monitor/measurements.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "gputrain/tasks/task.hpp"

namespace gputrain::monitor {
namespace {

using enum MeasurementKind;

constexpr std::array kMeasurements{
    Measurement{"steps_total", counter, "Optimizer steps done"},
    Measurement{"samples_total", counter, "Samples used by optimizer steps"},
    Measurement{"tokens_total", counter, "Tokens that the loss counted"},
    Measurement{"attempt", gauge, "Number of this start of the run"},
    Measurement{"epoch", gauge, "Epochs done, with their part"},
    Measurement{"planned_steps", gauge, "Steps of the whole run; 0 if time ends it"},
    Measurement{"last_step_timestamp_seconds", gauge, "When the newest step ended, in Unix time"},
    Measurement{"paused", gauge, "1 while the run waits to be resumed"},
    Measurement{"train/loss", gauge, "Training loss, averaged since the log line before"},
    Measurement{"train/grad_norm", gauge, "Norm of the gradient before it is clipped"},
    Measurement{"train/lr", gauge, "Learning rate"},
    Measurement{"train/loss_scale", gauge, "What the loss is multiplied by in fp16"},
    Measurement{"train/expert_share_max", gauge, "Largest part of a layer's choices that an expert gets"},
    Measurement{"train/expert_share_min", gauge, "Smallest part of a layer's choices that an expert gets"},
    Measurement{"train/mfu", gauge, "Share of the peak rate of the GPUs that the operations of the model are (MFU)"},
    Measurement{"train/samples_per_second", gauge, "Samples of all ranks per second of training"},
    Measurement{"train/tokens_per_second", gauge, "Tokens of all ranks per second of training"},
    Measurement{"time/stall_share", gauge, "Share of the steps' time in which ranks wait for data"},
    Measurement{"time/step_seconds", gauge, "Time of a step"},
    Measurement{"time/load_seconds", gauge, "Time of a step in which a rank waits for data, averaged over ranks"},
    Measurement{"time/copy_seconds", gauge, "Time of a step for copying and preparing its batches"},
    Measurement{"time/forward_seconds", gauge, "Time of a step in forward passes"},
    Measurement{"time/backward_seconds", gauge, "Time of a step in backward passes"},
    Measurement{"time/communication_seconds", gauge, "Time of a step in which a rank waits for the others"},
    Measurement{"time/optimizer_seconds", gauge, "Time of a step in the update of the weights"},
    Measurement{"time/graph_seconds", gauge, "Time of a step that is one CUDA graph"},
    Measurement{"time/train_seconds_total", counter, "Time in steps, over all attempts"},
    Measurement{"time/eval_seconds_total", counter, "Time in evaluations on data.val, over all attempts"},
    Measurement{"time/save_seconds_total", counter, "Time in which training stood still for saves, over all attempts"},
    Measurement{"time/left_seconds", gauge, "Time that the run still takes, with evaluations and saves; 0: unknown"},
    Measurement{"rank/phase_seconds_total", counter, "Time that a rank has spent in a phase of its steps"},
    Measurement{"rank/slowness_share", gauge, "How much longer the slowest rank's work takes than the others'"},
    Measurement{"rank/memory_bytes", gauge, "Memory of a rank: allocated on its GPU, or resident on the CPU"},
    Measurement{"host/cpu_ratio", gauge, "Share of time in which the processors of a rank's host compute"},
    Measurement{"host/memory_used_bytes", gauge, "Memory in use on a rank's host, or in its container"},
    Measurement{"host/memory_total_bytes", gauge, "Memory of a rank's host, or of its container"},
    Measurement{"gpu/most_utilization_ratio", gauge, "That of the GPU that computes most"},
    Measurement{"gpu/utilization_ratio", gauge, "Share of time in which the GPU computes"},
    Measurement{"gpu/memory_used_bytes", gauge, "Memory in use on the GPU, by all processes"},
    Measurement{"gpu/memory_total_bytes", gauge, "Memory of the GPU"},
    Measurement{"gpu/temperature_celsius", gauge, "Temperature of the GPU"},
    Measurement{"gpu/power_watts", gauge, "Power that the GPU draws"},
    Measurement{"gpu/power_limit_watts", gauge, "Power that the GPU may draw"},
    Measurement{"gpu/sm_clock_hertz", gauge, "Clock of the GPU's multiprocessors"},
    Measurement{"gpu/memory_clock_hertz", gauge, "Clock of the GPU's memory"},
    Measurement{"gpu/throttled", gauge, "1 while heat or power slow the GPU down"},
    Measurement{"gpu/ecc_uncorrected_total", counter, "Memory errors that the GPU could not correct"},
    Measurement{"gpu/xid", gauge, "Number of the GPU's newest error (Xid); 0: none"},
    Measurement{"gpu/lost", gauge, "1 if the GPU does not answer any more"},
    Measurement{"gpu/energy_joules_total", counter, "Energy that the GPU has used since its driver was loaded"},
    Measurement{"since_step_seconds", gauge, "Time since the newest step, while the run trains"},
    Measurement{"train/loss_spike", gauge, "Training loss over the median of the log lines before"},
    Measurement{"train/rate_share", gauge, "Rate over the median of the log lines before"},
    Measurement{"disk/free_share", gauge, "Free part of the disk of the run folder"},
    Measurement{"disk/free_bytes", gauge, "Free space on the disk of the run folder"},
    Measurement{"cost_total", counter, "What the run has cost so far, by limits.price_per_hour"},
    Measurement{"cost_limit", gauge, "limits.max_cost: the most that the run may cost"},
    Measurement{"cost_expected", gauge, "What the whole run is expected to cost, by the time that it still takes"},
    Measurement{"alerts_firing", gauge, "1 while an alert of the job is firing"},
};

std::string printable(std::string_view name) {
  std::string text = "gputrain_";
  for (const char c : name) text += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return text;
}

/// Finds the task's metric of "val/top1".
const tasks::Metric* metric_of(std::string_view name, const std::vector<tasks::Metric>& metrics) {
  const std::string_view last = name.substr(name.find('/') + 1);
  const auto found = std::ranges::find(metrics, last, &tasks::Metric::name);
  return found == metrics.end() ? nullptr : &*found;
}

}  // namespace

std::span<const Measurement> measurements() { return kMeasurements; }

std::vector<std::string> names_of_measurements() {
  std::vector<std::string> names;
  for (const Measurement& one : kMeasurements) names.emplace_back(one.name);
  for (const tasks::Metric& metric : tasks::catalog().metrics())
    for (const char* split : {"val/", "test/"}) names.push_back(split + metric.name);
  return names;
}

PrometheusName prometheus_name(std::string_view name) {
  const auto found = std::ranges::find(kMeasurements, name, &Measurement::name);
  if (found != kMeasurements.end()) return {printable(name), found->kind, std::string(found->help)};
  const auto metrics = tasks::catalog().metrics();
  const tasks::Metric* metric = metric_of(name, metrics);
  const std::string help = "Metric " + std::string(name) + " of the task";
  if (metric != nullptr && metric->unit == "%") return {printable(name) + "_ratio", gauge, help, 0.01};
  return {printable(name), gauge, help};
}

}  // namespace gputrain::monitor
