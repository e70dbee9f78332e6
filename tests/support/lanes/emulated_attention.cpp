// cuDNN's fused attention, computed by its formulas in fp64 on the CPU and rounded where cuDNN rounds.
#include <cmath>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include "../../../src/ops/cuda/autograd/flash_attention.hpp"
#include "../../../src/ops/cuda/cudnn/packed_attention.hpp"
#include "../../../src/ops/dispatch/kernel_autotuner.hpp"
#include "gputrain/ops/attention.hpp"
#include "support/lanes/emulated_attention.hpp"

namespace gputrain::testing_support {
bool has_attention_gradient = true;
}

namespace gputrain::ops::cuda {
namespace {

/// Heads in fp64; each key head is repeated for every query head that uses it.
Heads repeated(const at::Tensor& packed, const PackedAttention& attention) {
  const auto [q, k, v] = unpacked(packed.to(at::kDouble), attention.heads, attention.key_heads);
  const int64_t group = attention.heads / attention.key_heads;
  return {q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)};
}

at::Tensor scores(const Heads& heads, const PackedAttention& attention) {
  const at::Tensor all = at::matmul(heads.q, heads.k.transpose(2, 3)) * attention.scale;
  if (!attention.causal) return all;
  return all.masked_fill(at::ones({all.size(2), all.size(3)}, at::kBool).tril_().logical_not_(), -INFINITY);
}

/// [batch, heads, time, channels] -> [batch, time, heads, channels]; sums over the query heads that share a key head.
at::Tensor beside_each_other(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), heads, -1, x.size(2), x.size(3)}).sum(2).transpose(1, 2);
}

/// cuDNN's kernels round to the operands' type what they pass to the tensor cores, and each query head's gradients
/// before they sum those of a key head.
at::Tensor rounded(const at::Tensor& x, const at::Tensor& packed) { return x.to(packed.scalar_type()).to(at::kDouble); }

at::Tensor apart(const at::Tensor& y, int64_t heads) {
  return y.to(at::kDouble).view({y.size(0), y.size(1), heads, -1}).transpose(1, 2);
}

}  // namespace

Attended packed_attention(const at::Tensor& packed, const PackedAttention& attention) {
  const Heads heads = repeated(packed, attention);
  const at::Tensor s = scores(heads, attention), logarithms = at::logsumexp(s, {3});
  const at::Tensor y = at::matmul(rounded(at::exp(s - logarithms.unsqueeze(3)), packed), heads.v);
  return {.y = beside_each_other(y, attention.heads).flatten(2).to(packed.scalar_type()),
          .logarithms = logarithms.to(at::kFloat)};
}

at::Tensor packed_attention_gradient(const at::Tensor& packed, const PackedAttention& attention, const Attended& found,
                                     const at::Tensor& dy) {
  if (!testing_support::has_attention_gradient) throw NoKernel("refused");
  const Heads heads = repeated(packed, attention);
  const at::Tensor p = at::exp(scores(heads, attention) - found.logarithms.unsqueeze(3)),
                   dout = apart(dy, attention.heads), out = apart(found.y, attention.heads);
  const at::Tensor ds =
      rounded(p * (at::matmul(dout, heads.v.transpose(2, 3)) - (dout * out).sum({3}, /*keepdim=*/true)), packed);
  const at::Tensor dq = at::matmul(ds, heads.k) * attention.scale,
                   dk = rounded(at::matmul(ds.transpose(2, 3), heads.q) * attention.scale, packed),
                   dv = rounded(at::matmul(rounded(p, packed).transpose(2, 3), dout), packed);
  return at::cat({beside_each_other(dq, attention.heads), beside_each_other(dk, attention.key_heads),
                  beside_each_other(dv, attention.key_heads)},
                 2)
      .flatten(2)
      .to(packed.scalar_type());
}

at::Tensor flash_attention_of_texts(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options) {
  AttentionOptions within = options;
  within.positions = within.lengths = at::Tensor();
  within.texts = {};
  const at::Tensor offsets = options.texts.offsets.to(at::kLong);
  const int64_t* at = offsets.const_data_ptr<int64_t>();
  std::vector<at::Tensor> parts;
  for (int64_t text = 0; text + 1 < offsets.numel(); ++text) {
    const int64_t count = at[text + 1] - at[text];
    if (count == 0) continue;
    TORCH_CHECK(count > 0 && count <= options.texts.longest, "a text of ", count);
    const auto heads = [&](const at::Tensor& x) {
      return x.narrow(0, at[text], count).unsqueeze(0).transpose(1, 2).to(at::kDouble);
    };
    parts.push_back(attention(heads(q), heads(k), heads(v), within).transpose(1, 2).squeeze(0));
  }
  return at::cat(parts).to(q.scalar_type());
}

}  // namespace gputrain::ops::cuda
