// Convolutions of channels-last images that also return sums over their results: cuDNN does both in one kernel. Tests
// replace them by a CPU version.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cuda {

struct Convolution {
  at::Tensor weight;  // [out, in, kernel, kernel], channels last
  int64_t stride = 1, padding = 0;
};

/// Returns whether the functions below accept images of this type.
bool takes_sums(const at::Tensor& x);

struct SummedImages {
  at::Tensor y;
  at::Tensor sums;  // [2, channels of y] in fp32
};

/// Returns whether the function below has a kernel for this.
bool has_sums(const at::Tensor& x, const Convolution& conv);

/// Computes y = conv(x), and the sums of y and of y squared.
SummedImages convolution_sums(const at::Tensor& x, const Convolution& conv);

/// Returns whether the function below has a kernel for this.
bool has_gradient_sums(const at::Tensor& dy, const Convolution& conv);

/// Computes the gradient through a convolution and the ReLU and norm before it. z is the norm's input, with `moments`
/// of batch_moments_of(). Returns g, the gradient of the ReLU's operand, and the sums of g and of g (z - mean).
SummedImages convolution_gradient_sums(const at::Tensor& dy, const at::Tensor& z, const at::Tensor& moments,
                                       const Convolution& conv);

}  // namespace gputrain::ops::cuda
