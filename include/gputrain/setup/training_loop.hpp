// Training loop of a run: combines data, model, reduction and update, and can start at any step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gputrain/device/captured_graph.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/hook.hpp"
#include "gputrain/train/step.hpp"
#include "gputrain/train/trainer.hpp"

namespace gputrain::app {

/// Returns the reason why steps are not CUDA graphs on a device that supports them; empty: they are.
std::string obstacle_to_capture(const JobSpec& spec, const TrainingSetup& setup);

/// Returns the traffic of a step with as many passes as the plan has.
parallel::GradientTraffic traffic_of_step(const TrainingSetup& setup);

class TrainingLoop {
 public:
  using MakeCapturedGraphs = std::function<std::unique_ptr<device::CapturedGraphs>(at::Device)>;

  /// Refers to all arguments, which must outlive the loop. Calls `before_update` in each step before weights or
  /// optimizer state change. Every rank must call.
  TrainingLoop(const JobSpec& spec, TrainingSetup& setup, train::StopReason own_stop,
               std::function<void()> before_update,
               MakeCapturedGraphs make_captured_graphs = device::make_captured_graphs);
  /// Measures the phases of its steps from here on.
  void set_clock(device::PhaseClock* clock) noexcept { clock_ = clock; }

  /// Trains from `progress` to the end or to `last_step`. May be called again, from another step. Every rank must call.
  train::Outcome run(train::Progress& progress, const std::vector<train::Hook*>& hooks, int64_t last_step = INT64_MAX);

  /// Runs work that is no step in the memory of the steps, for hooks; see train::Step.
  void run_between_steps(const std::function<void()>& work) { step_ ? step_->run_between_steps(work) : work(); }

  /// Does the same with the average of the weights in the model, if the job has one. Every rank must call.
  void run_with_average(const std::function<void()>& work);
  /// Puts the average into the model after training, if the job has one. Every rank must call.
  void end_with_average();

 private:
  void exchange_average();

  const JobSpec& spec_;
  TrainingSetup& setup_;
  train::StopReason own_stop_;
  std::function<void()> before_update_;
  MakeCapturedGraphs make_captured_graphs_;
  parallel::DataParallel data_parallel_;
  device::PhaseClock* clock_ = nullptr;
  train::Step* step_ = nullptr;  // set during run()
};

}  // namespace gputrain::app
