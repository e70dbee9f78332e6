// Batch norm of channels-last images by our kernels: the steps that operators on the autograd graph are made of.
#pragma once

#include <ATen/core/Tensor.h>

#include "../../dispatch/path_choice.hpp"

namespace gputrain::ops::cuda {

bool is_image(const at::Tensor& x);            // channels last, without gaps
bool are_per_channel(const Tensors& tensors);  // fp32 without gaps

struct NormOperands {
  at::Tensor weight, bias, running_mean, running_var;  // [channels]; the latter two follow the batch
  double momentum = 0.1, eps = 1e-5;
};

/// mean, rstd, scale and shift [4, channels], of which the normalised x is x scale + shift. `sums` [2, channels]: of x
/// and of x squared where they are known, else undefined.
at::Tensor batch_moments_of(const at::Tensor& x, const at::Tensor& sums, const NormOperands& norm);

/// relu(normalised x + residual), each of the last two steps where it is asked for.
at::Tensor batch_applied(const at::Tensor& x, const at::Tensor& moments, const at::Tensor& residual, bool relu);

struct AppliedNorm {
  at::Tensor x, moments;
  at::Tensor y;  // defined where the ReLU's mask does not follow from x
  bool relu = false, has_residual = false;
};
struct NormGradients {
  at::Tensor dx, dweight, dbias;
  at::Tensor dresidual;  // defined where there is one
};
NormGradients batch_gradients(const at::Tensor& dy, const AppliedNorm& norm);

/// The same without a residual, of dy that has passed the ReLU; `sums` [2, channels]: of dy and of dy (x - mean).
NormGradients batch_gradients_of_sums(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& moments,
                                      const at::Tensor& sums);

}  // namespace gputrain::ops::cuda
