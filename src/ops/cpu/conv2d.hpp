// Convolutions in fp32 whose weight's gradient is ours.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cpu {

/// Whether that is faster than ATen's here. Those are oneDNN's, whose weight gradients with AVX2 take twice the time of
/// its other products; with AVX-512 they are as fast as these in vectors of its width, within a tenth. A property of
/// the processor, not of a measurement: a run that goes on computes as before.
bool own_conv_gradient_is_faster_here();

/// Whether conv2d() takes them: fp32 on a CPU, images and weight in NHWC order, with channels enough to fill vectors.
bool conv2d_takes(const at::Tensor& x, const at::Tensor& weight, int64_t dilation, int64_t groups);

/// x [batch, in, height, width], weight [out, in, kernel, kernel], bias [out] or undefined, on the autograd graph. The
/// gradient has the weight's strides.
at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride,
                  int64_t padding);

}  // namespace gputrain::ops::cpu
