// The GEMM shapes requested from cuBLAS, recorded on a CPU.
#include <ATen/ops/constant_pad_nd.h>
#include <gmock/gmock.h>

#include "ops/kernels/gpu_case.hpp"
#include "support/emulated_gemm.hpp"

namespace gputrain::ops {
namespace {

using namespace testing_support;

TEST(ProductShapes, GiveOddClassCountsTheirOwnProduct) {
  for (const int64_t classes : {21, 5, 24}) {
    const at::Tensor weight = noise({classes, 16}, 1, at::kFloat).set_requires_grad(true);
    const at::Tensor start = noise(weight.sizes(), 2, at::kFloat);
    at::Tensor(weight).mutable_grad() = start.clone();
    const at::Tensor copy = at::constant_pad_nd(weight.detach().to(at::kBFloat16), {0, 0, 0, 24 - classes});
    const Tensors inputs{noise({7, 16}, 3, at::kBFloat16), weight, {}, copy, {}};
    const at::Tensor y = gpu::linear(inputs, /*in_out=*/false)(inputs)[0], dy = noise({7, 24}, 4, at::kBFloat16);
    rows_of_products.clear();
    y.backward(dy);
    std::vector<int64_t> expected;
    if (classes >= 8) expected.push_back(classes / 8 * 8);
    if (classes % 8 > 0) expected.push_back(classes % 8);
    EXPECT_EQ(rows_of_products, expected);
    expect_within(1e-5, weight.grad(), wide(start) + wide(dy).narrow(1, 0, classes).t().matmul(wide(inputs[0])),
                  std::to_string(classes) + " classes");
  }
}

}  // namespace
}  // namespace gputrain::ops
