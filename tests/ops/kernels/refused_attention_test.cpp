// Attention without a cuDNN kernel for its gradient, simulated on a CPU.
#include <string>

#include <torch/csrc/autograd/function.h>

#include "gputrain/ops/attention.hpp"
#include "ops/kernels/gpu_case.hpp"
#include "support/lanes/emulated_attention.hpp"

namespace gputrain::ops {
namespace {

using namespace testing_support;

TEST(AttentionFallback, IsChosenBeforeResultIsUsed) {
  const at::Tensor packed = noise({3, 19, (2 + 2 * 2) * 16}, 1, at::kBFloat16).set_requires_grad(true);
  const OpImpl custom = gpu::attention(packed, 2, 2, /*causal=*/true, 0.25);
  has_attention_gradient = false;
  EXPECT_THROW(custom({packed}), NoKernel);
  const at::Tensor y = packed_attention(packed, 2, 2, {});
  EXPECT_NO_THROW(y.sum().backward());
  has_attention_gradient = true;
  EXPECT_EQ(y.grad_fn()->name().find("AttentionFunction"), std::string::npos);
  EXPECT_NO_THROW(custom({packed}));
}

}  // namespace
}  // namespace gputrain::ops
