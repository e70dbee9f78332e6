// A product and GELU, in the way that is fastest for its sizes: in one kernel or in two.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "../kernels/activation.hpp"

namespace gputrain::ops::cuda {

struct Activated {
  at::Tensor before, after;  // [rows, out]
};

/// Computes before = x matrix + bias, and after = GELU of it. x [rows, in]; matrix [in, out] is dense, or the transpose
/// of a dense one; bias [out]. All have the same 16-bit type.
Activated activated_product(const at::Tensor& x, const at::Tensor& matrix, const std::optional<at::Tensor>& bias,
                            ActivationKind kind);

struct ActivatedGradient {
  at::Tensor before;  // [rows, out]
  at::Tensor bias;    // fp32 [out], the sums of the columns; undefined unless wanted
};

/// Computes the gradient of `before`; dy matrix is the gradient of `after`. dy [rows, in], matrix [in, out] as above.
ActivatedGradient activated_product_gradient(const at::Tensor& dy, const at::Tensor& matrix, const at::Tensor& before,
                                             ActivationKind kind, bool wants_bias);

}  // namespace gputrain::ops::cuda
