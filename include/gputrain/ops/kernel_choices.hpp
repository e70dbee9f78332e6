// The kernels that this process chooses on a GPU, by trying them on the first tensors of each shape.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace gputrain::ops {

/// Keeps choices in `folder` too from now on, one folder per rank. Choices found there count first: an attempt of a run
/// computes with the kernels of the attempt before. Only for a process that uses a GPU, as all functions here.
void keep_kernel_choices(const std::filesystem::path& folder);

/// Chooses kernels without a clock from now on, so that GPUs of the same kind choose the same ones. Ranks that share
/// layers need that, because all of them must compute the same bits. Call before the first operator runs.
void choose_kernels_without_clock();

/// Ends trials once they have taken so many seconds; new shapes then take what was fastest for others.
void limit_kernel_trials(double seconds);

/// Calls `listener` before each trial with the number of trials so far and what is tried; from any thread, one call at
/// a time. Empty: no calls.
void on_kernel_trial(std::function<void(int64_t, std::string_view)> listener);

/// While this object exists, kernels are chosen roughly, without what takes seconds to build, and choices of operators
/// are forgotten afterwards. One at a time.
class RoughKernelChoices {
 public:
  RoughKernelChoices();
  RoughKernelChoices(const RoughKernelChoices&) = delete;
  RoughKernelChoices& operator=(const RoughKernelChoices&) = delete;
  ~RoughKernelChoices();
};

struct KernelTrials {
  int64_t count = 0;
  double seconds = 0;
  bool is_spent = false;  // the time for them is used up
  std::string file;  // the choices for all runs of this user; empty: none
};
KernelTrials kernel_trials();

}  // namespace gputrain::ops
