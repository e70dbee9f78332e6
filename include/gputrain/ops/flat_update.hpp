// Optimizer updates on flat buffers by our own GPU kernels: one launch for all ranges of a buffer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/stochastic_rounding.hpp"

namespace gputrain::ops {

/// A range of flat buffers with one set of settings.
struct FlatStretch {
  int64_t begin = 0, end = 0;  // in the state
  double weight_decay = 0;
  double lr_factor = 1;  // times UpdateScalars::lr
  double since = 0;      // updates made before these were trained: AdamWBuffers::step less this is theirs
  int64_t values_shift = 0, gradients_shift = 0;  // how much further on values (and the copy) and gradients are
  RoundedElements rounded = {};                   // elements of one tensor, if values or state have 16 bits
};

/// Device scalars of an update; found_inf and divisor as in optim::StepScalars.
struct UpdateScalars {
  at::Tensor lr;
  std::optional<at::Tensor> found_inf, divisor;
};

/// `copy` (16 bits, or undefined) receives the new values too, in the same places.
struct AdamWBuffers {
  at::Tensor values, gradients;  // fp32, or both bf16: values are then rounded stochastically
  at::Tensor first, second;      // fp32, or both bf16 and rounded so
  at::Tensor step;               // 0-dim fp32: number of updates, including this one
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
  /// `stretches` in ascending order.
  explicit FlatUpdate(std::vector<FlatStretch> stretches);

  /// Returns false if it did nothing and ATen has to make the update: on a CPU, in builds without CUDA, for fp64, and
  /// if our kernel was found to be wrong.
  bool adamw(const AdamWBuffers& buffers, const UpdateScalars& scalars, const AdamWRule& rule);
  bool sgd(const SgdBuffers& buffers, const UpdateScalars& scalars, const SgdRule& rule);

 private:
  bool takes(const at::Tensor& values, const at::Tensor& gradients);
  void upload(at::Device device);

  std::vector<FlatStretch> stretches_;
  at::Tensor table_;  // the stretches on the device, as bytes
  int64_t blocks_ = 0;
  friend struct FlatLaunch;
};

/// Scalars computed from a gradient; see optim::GradientReport.
struct GradientScalars {
  at::Tensor norm;                // 0-dim double
  at::Tensor found_inf, divisor;  // [1] float
};

/// Sums the squares of a flat gradient in fp32 or bf16, 0-dim double. Undefined if ATen has to compute it.
at::Tensor square_sum(const at::Tensor& flat);
/// Scalars for a sum of squares that square_sum() returned. `max_norm` 0: no clipping.
GradientScalars gradient_scalars(const at::Tensor& square, const std::optional<at::Tensor>& scale, double max_norm);

}  // namespace gputrain::ops
