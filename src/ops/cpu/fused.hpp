// Operators of CPUs in fp32 that do in one or two passes what ATen does in several, on the autograd graph.
#pragma once

#include <ATen/core/Tensor.h>

namespace gputrain::ops::cpu {

/// Whether the functions below take this tensor.
bool is_fusible(const at::Tensor& x);

at::Tensor gelu_tanh(const at::Tensor& x);

/// weight [channels]; bias may be undefined. Layer norm when `centred`, else RMS norm.
at::Tensor norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps, bool centred);

}  // namespace gputrain::ops::cpu
