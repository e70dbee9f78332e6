#include <ATen/ops/zeros_like.h>

#include "gputrain/core/error.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::train {

Stop FiniteHook::after_step(Progress& progress, const StepResult& result, bool) {
  if (!left_out_.defined()) left_out_ = at::zeros_like(result.found_inf);
  left_out_.add_(result.found_inf);
  if (progress.step % look_every_ == 0) look(progress);
  return Stop::none;
}

Stop FiniteHook::after_training(Progress& progress, bool) {
  if (left_out_.defined()) look(progress);
  return Stop::none;
}

void FiniteHook::look(Progress& progress) {
  const auto count = static_cast<int64_t>(left_out_.item<float>());
  if (count > 0) {
    left_out_.zero_();
    progress.nonfinite_steps += count;
    if (stops_ && scaler_ == nullptr) {
      const std::string when = look_every_ == 1 ? "at step " + std::to_string(progress.step)
                                                : "within " + std::to_string(look_every_) + " steps before step " +
                                                      std::to_string(progress.step);
      throw Error(ExitCode::refused,
                  {.what = "training diverged: the loss or a gradient is not finite " + when + "; that update was not made",
                   .hint = "lower optimizer.lr, set train.max_grad_norm: 1.0, or train.nonfinite: skip to go on"});
    }
  }
  if (scaler_ != nullptr && scaler_->has_collapsed()) {
    throw Error(ExitCode::refused,
                {.what = "training diverged: gradients are not finite at any loss scale at step " + std::to_string(progress.step),
                 .hint = "lower optimizer.lr, or use precision: bf16"});
  }
}

}  // namespace gputrain::train
