// What optimizers do with flat buffers, by kernels of our own on a GPU: one launch for all stretches of a buffer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gputrain::ops {

/// Elements of a flat buffer that share their settings.
struct FlatStretch {
  int64_t begin = 0, end = 0;
  double weight_decay = 0;
  double lr_factor = 1;  // times UpdateScalars::lr
  double since = 0;      // updates made before these were trained: AdamWBuffers::step less this is theirs
};

/// Device scalars of an update; the last two as in optim::StepScalars.
struct UpdateScalars {
  at::Tensor lr;
  std::optional<at::Tensor> found_inf, divisor;
};

/// Flat buffers are of as many elements; `copy`, of 16 bits or undefined, is written with the values.
struct AdamWBuffers {
  at::Tensor values, gradients;  // fp32
  at::Tensor first, second;
  at::Tensor step;  // 0-dim fp32: updates made, with this one
  at::Tensor copy = {};
};
struct AdamWRule {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};

struct SgdBuffers {
  at::Tensor values, gradients;  // fp32
  at::Tensor velocity;           // undefined without momentum
  at::Tensor copy = {};
};
struct SgdRule {
  double momentum = 0;
  bool nesterov = false;
};

class FlatUpdate {
 public:
  /// `stretches` in order.
  explicit FlatUpdate(std::vector<FlatStretch> stretches);

  /// False where nothing was done, and the update is ATen's to make: on a CPU, in builds without CUDA, for fp64, and
  /// where our kernel was found to be wrong.
  bool adamw(const AdamWBuffers& buffers, const UpdateScalars& scalars, const AdamWRule& rule);
  bool sgd(const SgdBuffers& buffers, const UpdateScalars& scalars, const SgdRule& rule);

 private:
  bool takes(const at::Tensor& values);
  void upload(at::Device device);

  std::vector<FlatStretch> stretches_;
  at::Tensor table_;  // the stretches on the device, bytes
  int64_t blocks_ = 0;
  friend struct FlatLaunch;
};

/// Scalars of a gradient; see optim::GradientReport.
struct GradientScalars {
  at::Tensor norm;                // 0-dim double
  at::Tensor found_inf, divisor;  // [1] float
};

/// The sum of squares of a flat fp32 gradient, 0-dim double; undefined where it is ATen's to compute.
at::Tensor square_sum(const at::Tensor& flat);
/// What follows from a sum of squares that square_sum() gave. `max_norm` 0: no clipping.
GradientScalars gradient_scalars(const at::Tensor& square, const std::optional<at::Tensor>& scale, double max_norm);

}  // namespace gputrain::ops
