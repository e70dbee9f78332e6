#include "gputrain/ops/kernel_choices.hpp"

#include <utility>

#include "kernel_autotuner.hpp"

namespace gputrain::ops {

void keep_kernel_choices(const std::filesystem::path& folder) { kernel_autotuner().keep_in(folder); }

bool& without_clock() {
  static bool is_set = false;
  return is_set;
}

void choose_kernels_without_clock() { without_clock() = true; }

void limit_kernel_trials(double seconds) { kernel_autotuner().limit_trials(seconds); }

void on_kernel_trial(std::function<void(int64_t, std::string_view)> listener) {
  kernel_autotuner().trials().set_listener(std::move(listener));
}

RoughKernelChoices::RoughKernelChoices() { kernel_autotuner().begin_rough_choices(); }
RoughKernelChoices::~RoughKernelChoices() { kernel_autotuner().end_rough_choices(); }

KernelTrials kernel_trials() {
  const Trials::Done done = kernel_autotuner().trials().done();
  return {done.count, done.seconds, kernel_autotuner().has_spent_trials(), kernel_autotuner().file().string()};
}

}  // namespace gputrain::ops
