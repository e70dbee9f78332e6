// Convolutions of channels-last images that also give sums over their results: cuDNN does either in one kernel. The
// tests answer for a CPU.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cuda {

struct Convolution {
  at::Tensor weight;  // [out, in, kernel, kernel], channels last
  int64_t stride = 1, padding = 0;
};

/// Whether the functions below take images of this type.
bool takes_sums(const at::Tensor& x);

struct SummedImages {
  at::Tensor y;
  at::Tensor sums;  // [2, channels of y] in fp32
};

/// Whether there is a kernel for the function below.
bool has_sums(const at::Tensor& x, const Convolution& conv);

/// y = conv(x); the sums of y and of y squared.
SummedImages convolution_sums(const at::Tensor& x, const Convolution& conv);

/// Whether there is a kernel for the function below.
bool has_gradient_sums(const at::Tensor& dy, const Convolution& conv);

/// With z, of moments as batch_moments_of() gives them, what was normalised and went through a ReLU into the
/// convolution: the gradient of the ReLU's operand; its sum, and the sum of its products with z - mean.
SummedImages convolution_gradient_sums(const at::Tensor& dy, const at::Tensor& z, const at::Tensor& moments,
                                       const Convolution& conv);

}  // namespace gputrain::ops::cuda
