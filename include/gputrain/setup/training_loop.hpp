// The training loop of a run: combines data, model, reduction and update, and can start at any step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gputrain/device/recording.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "gputrain/setup/assembly.hpp"
#include "gputrain/train/hook.hpp"
#include "gputrain/train/trainer.hpp"

namespace gputrain::app {

/// Why steps are not CUDA graphs on a device that supports them; empty: they are.
std::string obstacle_to_recording(const JobSpec& spec, const Assembly& assembly);

/// Of a step with as many passes as the plan has.
parallel::Traffic traffic_of_step(const Assembly& assembly);

class TrainingLoop {
 public:
  using MakeRecording = std::function<std::unique_ptr<device::Recording>(at::Device)>;

  /// All arguments must outlive the loop. Calls `before_update` in each step before weights or optimizer state change.
  /// Every rank must call.
  TrainingLoop(const JobSpec& spec, Assembly& assembly, train::StopReason own_stop, std::function<void()> before_update,
               MakeRecording make_recording = device::make_recording);

  /// Trains from `progress` to the end or to `last_step`. May be called again, from another step. Every rank must call.
  train::Outcome run(train::Progress& progress, const std::vector<train::Hook*>& hooks, int64_t last_step = INT64_MAX);

 private:
  const JobSpec& spec_;
  Assembly& assembly_;
  train::StopReason own_stop_;
  std::function<void()> before_update_;
  MakeRecording make_recording_;
  parallel::DataParallel data_parallel_;
};

}  // namespace gputrain::app
