// Attention on packed heads, with autograd, against ATen in fp64.
#include <cmath>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/function.h>

#include "gputrain/ops/attention.hpp"
#include "ops/kernels/gpu_case.hpp"

namespace gputrain::ops {
namespace {

using namespace testing_support;

struct HeadsCase {
  int64_t time, heads, key_heads, channels;
};
constexpr HeadsCase kHeads[] = {{64, 2, 2, 16}, {197, 3, 3, 8}, {33, 4, 2, 24}, {2, 2, 1, 8}};

at::Tensor packed_noise(const HeadsCase& c, at::ScalarType type) {
  return noise({2, c.time, (c.heads + 2 * c.key_heads) * c.channels}, 1, type);
}

TEST_F(GpuOperators, ComputeAttentionOnPackedHeads) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    // cuDNN also rounds the attention weights, their gradients, and each query head's gradients of a shared key head.
    const double slack = type == at::kBFloat16 ? 2 : 1;
    for (const HeadsCase& c : kHeads) {
      for (const bool causal : {true, false}) {
        SCOPED_TRACE(std::to_string(c.time) + (causal ? " causal" : ""));
        const Tensors inputs{packed_noise(c, type)};
        const double scale = 1 / std::sqrt(static_cast<double>(c.channels));
        compare(
            inputs, 1, gpu::attention(inputs[0], c.heads, c.key_heads, causal, scale),
            [&](const Tensors& t) {
              const auto [q, k, v] = unpacked(t[0], c.heads, c.key_heads);
              const at::Tensor y =
                  at::scaled_dot_product_attention(q, k, v, {}, 0, causal, scale, c.heads != c.key_heads);
              return Tensors{y.transpose(1, 2).reshape({2, c.time, c.heads * c.channels})};
            },
            slack);
      }
    }
  }
}

TEST_F(GpuOperators, LeaveAttentionCudnnLacksToAten) {
  const auto is_taken = [](const at::Tensor& packed) {
    return static_cast<bool>(gpu::attention(packed, 2, 2, true, 1));
  };
  EXPECT_TRUE(is_taken(noise({2, 5, 6 * 16}, 1, at::kHalf)));
  EXPECT_FALSE(is_taken(noise({2, 5, 6 * 16}, 1, at::kFloat)));
  EXPECT_FALSE(is_taken(noise({2, 5, 6 * 12}, 1, at::kHalf)));
  EXPECT_FALSE(is_taken(noise({2, 5, 6 * 136}, 1, at::kHalf)));
  EXPECT_FALSE(is_taken(noise({5, 2, 6 * 16}, 1, at::kHalf).transpose(0, 1)));
}

// cuDNN's graph knows all keys of a row, or those up to a query's place.
TEST_F(GpuOperators, LeaveAttentionToSomeOfTheKeysToAten) {
  const at::Tensor packed = noise({2, 5, 6 * 16}, 1, at::kHalf).set_requires_grad(true);
  const auto whole = at::TensorOptions().dtype(at::kLong).device(packed.device());
  const at::Tensor lengths = at::full({2}, 3, whole), positions = at::arange(5, whole).remainder(3).expand({2, 5});
  for (const AttentionOptions& options :
       {AttentionOptions{.causal = false, .lengths = lengths},
        AttentionOptions{.causal = false, .positions = positions}, AttentionOptions{.causal = false, .window = 2},
        AttentionOptions{.causal = false, .dropout = 0.1}}) {
    const at::Tensor y = packed_attention(packed, 2, 2, options);
    EXPECT_EQ(y.grad_fn()->name().find("AttentionFunction"), std::string::npos);
    EXPECT_TRUE(y.isfinite().all().item<bool>());
  }
}

}  // namespace
}  // namespace gputrain::ops
