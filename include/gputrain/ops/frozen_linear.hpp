// Products with frozen matrices, which may be kept in few bits: one is made anew for each product and kept by nobody.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/precision.hpp"

namespace gputrain::ops {

/// A matrix [out, in] that is not trained: `parts` are the tensors that are kept.
struct FrozenMatrix {
  /// Writes the matrix into a contiguous tensor [out, in] from the parts.
  using Read = std::function<void(const std::vector<at::Tensor>& parts, const at::Tensor& into)>;

  std::vector<at::Tensor> parts;
  Read read = {};                   // null: the only part is the matrix, in any type
  std::vector<int64_t> sizes = {};  // [out, in], if `read` is set

  at::Tensor in(at::ScalarType type) const;
};

/// Computes y = x W^T + bias: x [..., in], bias [out] or undefined -> [..., out]. Keeps neither x nor W for the
/// backward pass, only W's parts.
at::Tensor frozen_linear(const Policy& policy, const at::Tensor& x, const FrozenMatrix& matrix, const at::Tensor& bias);

}  // namespace gputrain::ops
