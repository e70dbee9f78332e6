// fp32 convolutions with our own gradient of the weight.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cpu {

/// Returns whether our gradient is faster than ATen's, by oneDNN, on this CPU. With AVX2, oneDNN's weight gradients
/// take twice the time of its other products; with AVX-512 they are as fast as ours at that width, within a tenth. This
/// depends on the processor, not on a measurement, so that a resumed run computes as before.
bool own_conv_gradient_is_faster_here();

/// Returns whether conv2d() accepts these: fp32 on a CPU, images and weight in NHWC order, enough channels to fill
/// vectors.
bool conv2d_takes(const at::Tensor& x, const at::Tensor& weight, int64_t dilation, int64_t groups);

/// Convolves x [batch, in, height, width] with weight [out, in, kernel, kernel], bias [out] or undefined. Recorded on
/// the autograd graph. The gradient has the weight's strides.
at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride,
                  int64_t padding);

}  // namespace gputrain::ops::cpu
