#include "gputrain/ops/kernel_choices.hpp"

#include <atomic>
#include <utility>

#include "kernel_autotuner.hpp"

namespace gputrain::ops {

void keep_kernel_choices(const std::filesystem::path& folder) { kernel_autotuner().keep_in(folder); }

namespace {
std::atomic<bool> is_without_clock = false;
}

bool has_no_clock() { return is_without_clock; }

void choose_kernels_without_clock() { is_without_clock = true; }

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
