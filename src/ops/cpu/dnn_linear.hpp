// Dense layers in fp32 whose products are oneDNN's.
#pragma once

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cpu {

/// Whether that is faster than ATen's products here. Those are MKL's, which leaves an AMD processor's AVX-512 units
/// unused: on an EPYC of 2024 oneDNN takes half the time. A property of the processor, not of a measurement: a run that
/// goes on computes as before.
bool dnn_is_faster_here();

/// Whether dnn_linear() takes them: fp32 on a CPU, and so much work that a library call more does not matter.
bool dnn_takes(const at::Tensor& x, const at::Tensor& matrix);

/// x [..., in] times the matrix, [out, in] or [in, out], plus bias [out], which may be undefined: [..., out], on the
/// autograd graph.
at::Tensor dnn_linear(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& bias, bool in_out);

}  // namespace gputrain::ops::cpu
