// Loss scaling for fp16: the rule of torch.amp.GradScaler, with its state on the device.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::optim {

/// The loss is multiplied by `scale`, so small gradients survive fp16. A step with a non-finite gradient halves the
/// scale; `growth_interval` good steps in a row double it (Micikevicius et al., "Mixed precision training", ICLR 2018).
class GradScaler {
 public:
  struct Options {
    double initial_scale = 65536;
    double growth_factor = 2;
    double backoff_factor = 0.5;
    int64_t growth_interval = 2000;
  };

  explicit GradScaler(at::Device device) : GradScaler(device, Options{}) {}
  GradScaler(at::Device device, const Options& options);

  /// Returns 0-dim float, the live tensor. Multiply the loss by it and pass it to measure_gradient.
  const at::Tensor& scale() const noexcept { return scale_; }

  /// Call after each step with that step's GradientReport::found_inf. Does not synchronise the device.
  void update(const at::Tensor& found_inf);

  /// Lowest scale. Below it gradients vanish instead of overflowing: a run that reaches it has diverged.
  static constexpr double kFloor = 1.0 / 16384;

  struct State {
    double scale = 0;
    int64_t growth_tracker = 0;  // good steps in a row
  };
  State state() const;  // reads the device: only for logs and saves
  void restore(const State& state);

  /// Returns whether the scale fell to kFloor. Reads the device.
  bool has_collapsed() const { return state().scale <= kFloor; }

 private:
  Options options_;
  at::Tensor scale_, growth_tracker_;
};

}  // namespace gputrain::optim
