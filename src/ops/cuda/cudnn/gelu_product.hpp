// Products with GELU or its gradient in the same kernel, by cuDNN, for runs that need not be deterministic. Tests
// replace them by a CPU version.
#pragma once

#include <ATen/core/Tensor.h>

#include "../kernels/activation.hpp"

namespace gputrain::ops::cuda {

/// Computes before = x matrix + bias, after = gelu(before). x [rows, in], bias [out]; matrix [in, out] is dense, or the
/// transpose of a dense one. All have the same 16-bit type. Throws NoKernel if cuDNN has no plan.
void gelu_product(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& bias, ActivationKind kind,
                  const at::Tensor& before, const at::Tensor& after);

/// Computes dbefore = dy matrix gelu'(before), and the sums of its columns, fp32 [out], unless `sums` is undefined. dy
/// [rows, in], before [rows, out]. The rest as above.
void gelu_gradient_product(const at::Tensor& dy, const at::Tensor& matrix, const at::Tensor& before,
                           ActivationKind kind, const at::Tensor& dbefore, const at::Tensor& sums);

}  // namespace gputrain::ops::cuda
