#include "gputrain/setup/timed_steps.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/device/offload.hpp"
#include "gputrain/device/out_of_memory.hpp"
#include "gputrain/device/step_clock.hpp"
#include "gputrain/setup/fixed_memory.hpp"
#include "gputrain/setup/training_loop.hpp"

namespace gputrain::app {
namespace {

/// Recorder of the end and the result of each step without synchronizing the device.
class TimingHook final : public train::Hook {
 public:
  TimingHook(at::Device device, double enough_seconds, std::function<void()> at_end)
      : clock_(device), enough_seconds_(enough_seconds), at_end_(std::move(at_end)) {}

  void before_training(train::Progress&) override { clock_.mark(); }

  train::Stop after_step(train::Progress&, const train::StepResult& result, bool) override {
    clock_.mark();
    results_.push_back(result);
    // The first step tries and compiles kernels, which may take a minute: it does not count.
    if (results_.size() == 1) {
      watch_.lap();
      return train::Stop::none;
    }
    return watch_.seconds() > enough_seconds_ ? train::Stop::max_time : train::Stop::none;
  }

  train::Stop after_training(train::Progress&, bool) override {
    at_end_();
    return train::Stop::none;
  }

  TimedSteps finish(int64_t warmup) const {
    TimedSteps timed;
    const auto seconds = clock_.seconds();
    const size_t first = std::min(static_cast<size_t>(warmup), seconds.size() - 1);
    for (size_t i = first; i < seconds.size(); ++i) {
      timed.seconds.push_back(seconds[i]);
      timed.samples_per_second.push_back(static_cast<double>(results_[i].samples) / seconds[i]);
    }
    timed.first_loss = mean_loss(results_.front());
    timed.last_loss = mean_loss(results_.back());
    return timed;
  }

 private:
  static double mean_loss(const train::StepResult& result) {
    return result.loss_sum.item<double>() / train::divisor_of_loss(result.weight);
  }

  device::StepClock clock_;
  double enough_seconds_;
  std::function<void()> at_end_;
  train::Stopwatch watch_;
  std::vector<train::StepResult> results_;
};

int64_t peak_bytes(const TrainingSetup& setup) {
  const int64_t peak = device::read_memory(setup.context.device).peak_tensor_bytes;
  // On the CPU the arena and tensors of its size are mapped outside the allocator.
  if (!setup.context.device.is_cpu()) return peak;
  return peak + fixed_memory(setup.built, setup.optimizer_stack).with_host() + device::offload_bytes();
}

void evaluate_once(const Job& job, TrainingSetup& setup) {
  if (!setup.datasets.val) return;
  train::StopPoll never(setup.context.groups, {});
  constexpr int64_t kOneSample = 1;  // padded to a whole pass
  make_evaluator(job.spec(), setup.datasets.val, setup, "val", kOneSample)
      .run(*setup.built.model, setup.context.groups, never);
  never.finish();
}

std::unique_ptr<device::CapturedGraphs> without_graph(at::Device) { return nullptr; }

}  // namespace

double median(std::vector<double> values) {
  GPUTRAIN_ASSERT(!values.empty(), "the median of nothing");
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

double TimedSteps::median_rate() const { return median(samples_per_second); }

TimedSteps time_steps(const Job& job, TrainingSetup& setup, const Timing& timing) {
  const train::Plan plan = setup.plan;
  setup.plan.batch = timing.batch;
  setup.plan.total_steps = timing.warmup + timing.steps;
  TrainingLoop loop(
      job.spec(), setup, {}, [] {}, timing.records() ? device::make_captured_graphs : without_graph);
  TimingHook hook(setup.context.device, timing.enough_seconds, [&] {
    if (timing.evaluates) loop.run_between_steps([&] { evaluate_once(job, setup); });
  });
  train::Progress progress;
  loop.run(progress, {&hook});
  setup.plan = plan;
  TimedSteps timed = hook.finish(timing.warmup);
  timed.peak_bytes = peak_bytes(setup);
  return timed;
}

}  // namespace gputrain::app
