// Normalisations. They compute in at least fp32 for every type of activations; results have the activations' type.
#pragma once

#include <ATen/core/Tensor.h>

namespace gputrain::comm {
class Group;
}

namespace gputrain::ops {

/// Normalizes over the last dim; weight and bias [channels], bias may be undefined. (Ba et al., arXiv:1607.06450)
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);

/// Computes x / sqrt(mean(x^2) + eps) * weight over the last dim. (Zhang and Sennrich, arXiv:1910.07467)
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// The residual stream after an addition, and its norm.
struct NormedSum {
  at::Tensor sum, normed;
};
/// Computes sum = dropout(x) + residual, and its layer norm: one operator, because a GPU can fuse the steps.
NormedSum layer_norm_of_sum(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                            const at::Tensor& bias, double eps, double dropout);
NormedSum rms_norm_of_sum(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps,
                          double dropout);

struct BatchNormOptions {
  bool training = true;
  double momentum = 0.1;  // weight of the batch in the running statistics
  double eps = 1e-5;
  /// In training, the statistics cover x of all ranks together, each value with the same weight. Every rank must call,
  /// forward and backward, also if its x has no rows. Null: statistics of this x alone.
  comm::Group* group = nullptr;
};

/// Normalizes x [batch, channels, height, width]. Training updates `running_mean` and `running_var` in place. (Ioffe
/// and Szegedy, arXiv:1502.03167)
at::Tensor batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& running_mean, const at::Tensor& running_var, const BatchNormOptions& options);

/// Computes relu(batch_norm(x) + residual); residual [batch, channels, height, width] or undefined. One operator,
/// because the steps can be fused.
at::Tensor batch_norm_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& running_mean, const at::Tensor& running_var,
                           const BatchNormOptions& options, const at::Tensor& residual);

}  // namespace gputrain::ops
