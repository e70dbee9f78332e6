// Frozen dense layers with adapters of low rank, all of the same x.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/ops/frozen_linear.hpp"
#include "gputrain/ops/precision.hpp"

namespace gputrain::ops {

/// y = x W^T + bias + scale (x A^T) B^T, of which A and B alone are trained (Hu et al., LoRA, arXiv:2106.09685).
struct AdaptedLinear {
  FrozenMatrix weight;  // [out, in]
  at::Tensor bias;      // [out] or undefined
  at::Tensor a, b;      // [rank, in], [out, rank]; undefined: no adapter
  double scale = 1;
  at::Tensor dropped = {};  // x after the adapter's dropout, which A reads; undefined: it reads x
};

/// Computes the result of each layer for x [..., in] -> [..., out]. Sums are added where they are stored: results are
/// not copied for the adapter's part, nor are gradients of x for each layer's part.
std::vector<at::Tensor> adapted_linears(const Policy& policy, const at::Tensor& x,
                                        const std::vector<AdaptedLinear>& layers);

}  // namespace gputrain::ops
