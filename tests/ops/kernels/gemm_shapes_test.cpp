// The products requested from cuBLAS and cuDNN, recorded on a CPU.
#include <ATen/ops/constant_pad_nd.h>
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "../../../src/ops/dispatch/kernel_autotuner.hpp"
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

/// Prefers what is tried last.
class LastWayIsFastest : public testing::Test {
 protected:
  void SetUp() override { other_autotuner = &tuner_; }
  void TearDown() override { other_autotuner = nullptr; }

  double time_ = 1e9;
  KernelAutotuner tuner_{{.milliseconds =
                              [this](const std::function<void()>& work) {
                                work();
                                return time_ *= 0.99;
                              },
                          .can_measure = [] { return true; }}};
};

/// Inputs of feed_forward: x, weights and biases, their copies.
Tensors feed_forward_of(int64_t rows) {
  Tensors all{noise({rows, 16}, 1, at::kBFloat16), noise({40, 16}, 2, at::kFloat), noise({40}, 3, at::kFloat),
              noise({24, 40}, 4, at::kFloat), noise({24}, 5, at::kFloat)};
  for (size_t i = 1; i < 5; ++i) all.push_back(all[i].to(at::kBFloat16));
  for (size_t i = 0; i < 5; ++i) all[i].set_requires_grad(true);
  return all;
}

/// y and the gradients of the inputs.
Tensors results_of(const OpImpl& feed_forward, const Tensors& inputs) {
  for (size_t i = 0; i < 5; ++i) at::Tensor(inputs[i]).mutable_grad() = at::Tensor();
  Tensors results{feed_forward(inputs)[0]};
  results[0].backward(noise(results[0].sizes(), 6, at::kBFloat16));
  for (size_t i = 0; i < 5; ++i) results.push_back(inputs[i].grad());
  return results;
}

TEST_F(LastWayIsFastest, ComputesProductsWithGeluInOneKernel) {
  const Tensors inputs = feed_forward_of(30);
  for (const bool by_tanh : {false, true}) {
    const OpImpl custom = gpu::feed_forward(inputs, false, by_tanh ? Activation::gelu_tanh : Activation::gelu);
    results_of(custom, inputs);  // tries both ways
    gelu_products.clear();
    const Tensors found = results_of(custom, inputs);
    // cuBLASLt has a product with GELU by tanh, without its gradient.
    const std::vector<std::string> expected_products =
        by_tanh ? std::vector<std::string>{"tanh"} : std::vector<std::string>{"none", "none"};
    EXPECT_EQ(gelu_products, expected_products);
    other_autotuner = nullptr;
    const Tensors expected = results_of(custom, inputs);
    other_autotuner = &tuner_;
    EXPECT_EQ(gelu_products, expected_products);
    for (size_t i = 0; i < found.size(); ++i)
      expect_within(1e-2, found[i], wide(expected[i]), "result " + std::to_string(i));
  }
}

TEST_F(LastWayIsFastest, IsNotTriedAgainOnceRefused) {
  const Tensors inputs = feed_forward_of(31);
  const OpImpl custom = gpu::feed_forward(inputs, false, Activation::gelu);
  results_of(custom, inputs);
  gelu_products_are_refused = true;
  const Tensors refused = results_of(custom, inputs);
  gelu_products.clear();
  gelu_products_are_refused = false;
  const Tensors after = results_of(custom, inputs);
  EXPECT_TRUE(gelu_products.empty());
  expect_same_bits(after, refused);
}

TEST_F(LastWayIsFastest, TriesFewNumbersOfRows) {
  std::vector<int64_t> in_one_kernel;
  for (int64_t rows = 1; rows <= 7; ++rows) {
    const Tensors inputs = feed_forward_of(rows);
    const OpImpl custom = gpu::feed_forward(inputs, false, Activation::gelu);
    results_of(custom, inputs);
    gelu_products.clear();
    results_of(custom, inputs);
    if (!gelu_products.empty()) in_one_kernel.push_back(rows);
  }
  EXPECT_LE(in_one_kernel.size(), 4U);  // those of other tests count too
  EXPECT_THAT(in_one_kernel, testing::Contains(1));
}

}  // namespace
}  // namespace gputrain::ops
