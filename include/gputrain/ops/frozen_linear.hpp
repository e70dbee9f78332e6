// Products with frozen matrices, which may be kept in few bits: one is made anew for each product and kept by nobody.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/precision.hpp"

namespace gputrain::ops {

/// A matrix [out, in] that is not trained: `parts` are the tensors that are kept.
struct FrozenMatrix {
  /// Makes the matrix in this type from the parts.
  using Read = std::function<at::Tensor(const std::vector<at::Tensor>& parts, at::ScalarType type)>;

  std::vector<at::Tensor> parts;
  Read read;  // null: the only part is the matrix, in any type

  at::Tensor in(at::ScalarType type) const { return read_in(read, parts, type); }
  static at::Tensor read_in(const Read& read, const std::vector<at::Tensor>& parts, at::ScalarType type);
};

/// Computes y = x W^T + bias: x [..., in], bias [out] or undefined -> [..., out]. Keeps neither x nor W for the
/// backward pass, only W's parts.
at::Tensor frozen_linear(const Policy& policy, const at::Tensor& x, const FrozenMatrix& matrix, const at::Tensor& bias);

}  // namespace gputrain::ops
