// Batch norm of channels-last images by our kernels: building blocks of operators on the autograd graph.
#pragma once

#include <ATen/core/Tensor.h>

#include "../../dispatch/kernel_autotuner.hpp"

namespace gputrain::ops::cuda {

bool is_image(const at::Tensor& x);            // channels last and dense
bool are_per_channel(const Tensors& tensors);  // fp32 and contiguous

struct NormOperands {
  at::Tensor weight, bias, running_mean, running_var;  // [channels]; the running ones are updated in place
  double momentum = 0.1, eps = 1e-5;
};

/// Returns mean, rstd, scale and shift [4, channels]; the normalised x is x scale + shift. `sums` [2, channels]: known
/// sums of x and x squared, else undefined.
at::Tensor batch_moments_of(const at::Tensor& x, const at::Tensor& sums, const NormOperands& norm);

struct AppliedImages {
  at::Tensor y;
  at::Tensor kept;  // tells where y is above 0, if that does not follow from x: bits in uint8, or y; else undefined
};
/// Computes relu(normalised x + residual); residual and ReLU are optional.
AppliedImages batch_applied(const at::Tensor& x, const at::Tensor& moments, const at::Tensor& residual, bool relu);

struct AppliedNorm {
  at::Tensor x, moments;
  at::Tensor kept;  // as in AppliedImages
  bool relu = false, has_residual = false;
};
struct NormGradients {
  at::Tensor dx, dweight, dbias;
  at::Tensor dresidual;  // defined if there is a residual
};
NormGradients batch_gradients(const at::Tensor& dy, const AppliedNorm& norm);

/// Computes the same without a residual, for dy masked by the ReLU; `sums` [2, channels]: of dy and dy (x - mean).
NormGradients batch_gradients_of_sums(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& moments,
                                      const at::Tensor& sums);

}  // namespace gputrain::ops::cuda
