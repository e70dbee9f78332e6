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
  /// Computes rows [n, in] W^T + bias -> [n, out] in the rows' type; bias in that type, or undefined.
  at::Tensor times_rows(const at::Tensor& rows, const at::Tensor& bias) const;
  /// Computes dy [n, out] W -> [n, in] in dy's type.
  at::Tensor times_gradient(const at::Tensor& dy) const;
};

/// While one lives, steps on a CPU allocate what they would on a GPU: products keep the type of their rows, also where
/// the CPU is faster in another.
class GpuMemoryScope {
 public:
  GpuMemoryScope();
  ~GpuMemoryScope();
  GpuMemoryScope(const GpuMemoryScope&) = delete;
  GpuMemoryScope& operator=(const GpuMemoryScope&) = delete;
};

/// Computes y = x W^T + bias: x [..., in], bias [out] or undefined -> [..., out]. Keeps neither x nor W for the
/// backward pass, only W's parts.
at::Tensor frozen_linear(const Policy& policy, const at::Tensor& x, const FrozenMatrix& matrix, const at::Tensor& bias);

}  // namespace gputrain::ops
