// Tells on the console that a run chooses GPU kernels, which takes a minute or more before the first step.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "gputrain/monitor/console.hpp"
#include "gputrain/train/hook.hpp"

namespace gputrain::app {

/// Shows each trial of a kernel on the status line, and from time to time on a line of its own. As a hook, it prints
/// one line when a step has tried nothing new. Does nothing on a CPU. One at a time; `console` must outlive it.
class KernelStatus final : public train::Hook {
 public:
  KernelStatus(monitor::Console& console, at::Device device);
  KernelStatus(const KernelStatus&) = delete;
  KernelStatus& operator=(const KernelStatus&) = delete;
  ~KernelStatus() override;

  train::Stop after_step(train::Progress& progress, const train::StepResult& result, bool requested) override;

 private:
  void show(int64_t count, std::string_view name);

  monitor::Console& console_;
  bool is_on_gpu_;
  std::chrono::steady_clock::time_point last_line_ = std::chrono::steady_clock::now();
  int64_t told_ = 0, tried_ = 0;  // trials in the newest line, and at the end of the newest step
};

}  // namespace gputrain::app
