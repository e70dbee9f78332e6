#include "gputrain/train/meter_hook.hpp"

#include <cmath>
#include <utility>

#include <ATen/ops/tensor.h>

namespace gputrain::train {
namespace {

using device::kPhases;
using device::PhaseTimes;

constexpr double kLeastSeconds = 0.5;  // between comparisons
constexpr int64_t kLeastSteps = 4;

std::string name_of(size_t phase) { return device::name_of(static_cast<device::Phase>(phase)); }

}  // namespace

bool MeterHook::is_due() const {
  return parts_.groups.rank() == 0 && (is_held_ || steps_ >= kLeastSteps) &&
         since_comparison_.seconds() >= kLeastSeconds;
}

Stop MeterHook::after_step(Progress& progress, const StepResult&, bool requested) {
  ++steps_;
  is_held_ = false;
  const Plan& plan = parts_.reporting.plan;
  if (parts_.groups.rank() == 0)
    parts_.board.note_step(progress.step, plan.epochs_in(progress.step), progress.usage.samples, progress.tokens);
  if (requested) compare(progress);
  return Stop::none;
}

Stop MeterHook::while_held(Progress&, bool requested) {
  is_held_ = true;
  if (requested) gather({});
  return Stop::none;
}

/// Shows all ranks' readings on the board, and returns all ranks' times on rank 0. Every rank must call.
std::vector<PhaseTimes> MeterHook::gather(const PhaseTimes& times) {
  const monitor::Metrics readings = parts_.readings();
  std::vector<double> mine(times.begin(), times.end());
  for (const auto& [name, value] : readings) mine.push_back(value);
  const at::Tensor all = parts_.groups.control().all_gather(at::tensor(mine, at::kDouble), "the ranks' times");
  since_comparison_.lap();
  if (parts_.groups.rank() != 0) return {};
  std::vector<PhaseTimes> ranks(parts_.places.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const double* values = all.const_data_ptr<double>() + rank * mine.size();
    std::copy_n(values, kPhases, ranks[rank].begin());
    monitor::Metrics metrics;
    size_t next = kPhases;
    for (const auto& [name, value] : readings) {
      if (const double read = values[next++]; !std::isnan(read)) metrics[name] = read;
    }
    parts_.board.set_rank(static_cast<int>(rank), metrics);
  }
  return ranks;
}

/// Compares the times of all ranks. Every rank must call.
void MeterHook::compare(const Progress& progress) {
  const auto ranks = gather(parts_.clock.take());
  if (!ranks.empty()) show(ranks, progress);
  steps_ = 0;
}

void MeterHook::show(const std::vector<PhaseTimes>& ranks, const Progress& progress) {
  totals_.resize(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    monitor::Metrics metrics;
    for (size_t i = 0; i < kPhases; ++i) {
      totals_[rank][i] += ranks[rank][i];
      since_line_[i] += ranks[rank][i] / static_cast<double>(ranks.size());
      if (totals_[rank][i] > 0) metrics["phase/" + name_of(i)] = totals_[rank][i];
    }
    parts_.board.set_rank(static_cast<int>(rank), metrics);
  }
  steps_since_line_ += steps_;
  const auto straggler = finder_.look(ranks);
  if (const auto& slowest = finder_.slowest()) parts_.board.set("rank/slowness_share", slowest->excess);
  if (!straggler) return;
  parts_.reporting.recorder.log({.step = progress.step,
                                 .epoch = parts_.reporting.plan.epochs_in(progress.step),
                                 .kind = "event",
                                 .label = "slow",
                                 .text = describe(*straggler, parts_.places)});
}

monitor::Metrics MeterHook::take_times() {
  monitor::Metrics metrics;
  const auto steps = static_cast<double>(std::exchange(steps_since_line_, 0));
  const PhaseTimes times = std::exchange(since_line_, {});
  if (steps == 0) return metrics;
  double all = 0;
  for (size_t i = 0; i < kPhases; ++i) {
    all += times[i];
    if (times[i] > 0) metrics["time/" + name_of(i) + "_seconds"] = times[i] / steps;
  }
  const double load = times[static_cast<size_t>(device::Phase::load)];
  if (all > 0) metrics["time/stall_share"] = load / all;
  return metrics;
}

}  // namespace gputrain::train
