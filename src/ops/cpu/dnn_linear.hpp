// fp32 dense layers with oneDNN's products.
#pragma once

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cpu {

/// Returns whether oneDNN is faster than ATen's MKL on this CPU. MKL does not use an AMD processor's AVX-512 units: on
/// an EPYC of 2024 oneDNN takes half the time. This depends on the processor, not on a measurement, so that a resumed
/// run computes as before.
bool dnn_is_faster_here();

/// Returns whether dnn_linear() accepts these: fp32 on a CPU, and enough work to hide one more library call.
bool dnn_takes(const at::Tensor& x, const at::Tensor& matrix);

/// Computes x [..., in] times the matrix [out, in], or [in, out] if `in_out`, plus bias [out] or undefined -> [...,
/// out]. Recorded on the autograd graph.
at::Tensor dnn_linear(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& bias, bool in_out);

}  // namespace gputrain::ops::cpu
