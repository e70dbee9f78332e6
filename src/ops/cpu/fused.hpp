// fp32 operators for CPUs, on the autograd graph: one or two passes instead of ATen's several.
#pragma once

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cpu {

/// Returns whether the functions below accept this tensor.
bool is_fusible(const at::Tensor& x);

at::Tensor gelu_tanh(const at::Tensor& x);

/// Normalizes with weight [channels]; bias may be undefined. Layer norm when `centred`, else RMS norm.
at::Tensor norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps, bool centred);

/// Returns whether batch_norm_relu() accepts these images: fp32 on a CPU in NHWC order, more than one value per
/// channel.
bool is_fusible_batch(const at::Tensor& x, const at::Tensor& residual);

struct RunningStatistics {
  at::Tensor mean, variance;  // updated in place
  double momentum;
};

/// Computes relu(batch_norm(x) + residual) in training; the residual may be undefined.
at::Tensor batch_norm_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& residual, const RunningStatistics& running, double eps);

}  // namespace gputrain::ops::cpu
