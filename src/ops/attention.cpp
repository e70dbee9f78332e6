#include "gputrain/ops/attention.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sin.h>

namespace gputrain::ops {

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  return at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, options.dropout, options.causal, options.scale,
                                          /*enable_gqa=*/q.size(1) != k.size(1));
}

RotaryTable::RotaryTable(int64_t positions, int64_t channels, double theta, const at::TensorOptions& options) {
  // Angles are rounded to fp32 on purpose: models were trained with these, and exact ones differ at far positions.
  const auto single = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor exponents = at::arange(0, channels, 2, single).div(static_cast<double>(channels));
  const at::Tensor frequencies = at::reciprocal(at::pow(theta, exponents));
  const at::Tensor angles = at::outer(at::arange(positions, single), frequencies);
  cosine = at::cos(angles).to(options);
  sine = at::sin(angles).to(options);
}

}  // namespace gputrain::ops
