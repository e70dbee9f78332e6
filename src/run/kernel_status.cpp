#include "gputrain/run/kernel_status.hpp"

#include <string>

#include "gputrain/core/numbers.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/ops/kernel_choices.hpp"

namespace gputrain::app {

KernelStatus::KernelStatus(monitor::Console& console, at::Device device)
    : console_(console), is_on_gpu_(device.is_cuda()) {
  if (is_on_gpu_) ops::on_kernel_trial([this](int64_t count, std::string_view name) { show(count, name); });
}

KernelStatus::~KernelStatus() {
  if (is_on_gpu_) ops::on_kernel_trial({});
}

void KernelStatus::show(int64_t count, std::string_view name) {
  constexpr std::chrono::seconds kBetweenLines{20};
  const std::string text = "trying GPU kernels, " + grouped(count) + " so far";
  const auto now = std::chrono::steady_clock::now();
  if (now - last_line_ >= kBetweenLines) {
    console_.line("kernels", text);
    last_line_ = now;
  }
  console_.status(text + ": " + std::string(name));
}

train::Stop KernelStatus::after_step(train::Progress&, const train::StepResult&, bool) {
  if (!is_on_gpu_) return train::Stop::none;
  const ops::KernelTrials trials = ops::kernel_trials();
  const bool is_settled = trials.count == tried_;
  tried_ = trials.count;
  if (!is_settled || tried_ == told_) return train::Stop::none;
  const bool is_first = told_ == 0;
  told_ = tried_;
  std::string text = counted(tried_, "trial") + " in " + monitor::duration(trials.seconds);
  if (trials.is_spent) text += ", all that train.kernel_trials allows: new shapes take what was fastest for others";
  if (is_first && !trials.file.empty()) text += "; later runs find the choices in " + trials.file;
  console_.line("kernels", text);
  return train::Stop::none;
}

}  // namespace gputrain::app
