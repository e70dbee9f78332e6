// Dense layers and their matrix products, with autograd, against ATen in fp64.
#include "../../../src/ops/cuda/cublas/gemm.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "../../../src/ops/cuda/autograd/apply_activation.hpp"
#include "../../../src/ops/cuda/cudnn/gelu_product.hpp"
#include "gputrain/ops/chunked_cross_entropy.hpp"
#include "ops/kernels/gpu_case.hpp"

namespace gputrain::ops {
namespace {

using namespace testing_support;

/// {x, weight, bias, copies of both}; the weight is [in, out] or [out, in], its copy has extra rows of zeros.
Tensors dense_layer(at::ScalarType type, bool in_out, int64_t padding = 0) {
  const at::Tensor weight = noise({in_out ? 24 : 16, in_out ? 16 : 24}, 2, at::kFloat),
                   bias = noise({16}, 3, at::kFloat);
  const at::Tensor copy = at::constant_pad_nd(weight.to(type), {0, 0, 0, padding});
  const at::Tensor x = noise({3, 7, 24}, 1, type);
  return padding > 0 ? Tensors{x, weight, {}, copy, {}} : Tensors{x, weight, bias, copy, bias.to(type)};
}

/// `linear` in fp64; the gradients of the copies go to weight and bias.
Tensors exact_dense_layer(const Tensors& t, bool in_out) {
  const at::Tensor copy = t[3] + at::constant_pad_nd(t[1] - t[1].detach(), {0, 0, 0, t[3].size(0) - t[1].size(0)});
  const at::Tensor product = at::matmul(t[0], in_out ? copy : copy.t());
  return {t[2].defined() ? product + (t[4] + t[2] - t[2].detach()) : product};
}

TEST_F(GpuOperators, ComputeDenseLayersWithFp32Gradients) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const bool in_out : {false, true}) {
      for (const int64_t padding : {0, 8}) {
        if (in_out && padding > 0) continue;
        const Tensors inputs = dense_layer(type, in_out, padding);
        compare(inputs, 3, gpu::linear(inputs, in_out),
                [in_out](const Tensors& t) { return exact_dense_layer(t, in_out); });
      }
    }
  }
}

TEST_F(GpuOperators, AddWeightGradientOfDenseLayerInPlace) {
  for (const bool in_out : {false, true}) {
    const Tensors inputs = dense_layer(at::kBFloat16, in_out);
    const Tensors exact = leaves_of(inputs, 3, /*in_double=*/true);
    const at::Tensor weight = inputs[1].set_requires_grad(true), bias = inputs[2].set_requires_grad(true);
    const at::Tensor start = noise(weight.sizes(), 5, at::kFloat), place = start.clone();
    at::Tensor(weight).mutable_grad() = place;
    const OpImpl custom = gpu::linear(inputs, in_out);
    for (int pass = 0; pass < 2; ++pass) custom(inputs)[0].sum().backward();
    EXPECT_TRUE(weight.grad().is_same(place));
    exact_dense_layer(exact, in_out)[0].sum().backward();
    expect_within(1e-5, place, wide(start) + 2 * exact[1].grad(), "gradient of the weight");
    expect_within(1e-5, bias.grad(), 2 * exact[2].grad(), "gradient of the bias");
  }
}

/// A head that is computed in parts has its gradients before any backward pass.
TEST_F(GpuOperators, AddHeadGradientInPlacePartByPart) {
  constexpr int64_t kRows = 300;
  const at::Tensor start = noise({40, 24}, 5, at::kFloat), place = start.clone(),
                   copy = noise({40, 24}, 6, at::kBFloat16), weight = copy.to(at::kFloat).set_requires_grad(true),
                   features = noise({kRows, 24}, 7, at::kBFloat16).set_requires_grad(true),
                   targets = at::arange(kRows, on_device(at::kLong)).remainder_(40);
  at::Tensor(weight).mutable_grad() = place;
  const Head head{.logits =
                      [&](const at::Tensor& rows) {
                        const Tensors inputs{rows, weight, {}, copy, {}};
                        return gpu::linear(inputs, /*in_out=*/false)(inputs)[0];
                      },
                  .parameters = {weight},
                  .columns = 40};
  const Loss loss = chunked_cross_entropy(head, features, targets, {.classes = 40}, 130 * 40 * 2);
  loss.weighted.backward();
  EXPECT_TRUE(weight.grad().is_same(place));
  const at::Tensor exact_features = wide(features.detach()).set_requires_grad(true),
                   exact_weight = wide(copy).set_requires_grad(true);
  const at::Tensor exact =
      at::cross_entropy_loss(at::matmul(exact_features, exact_weight.t()), targets, {}, at::Reduction::Sum);
  exact.backward();
  expect_within(1e-3, loss.sum, exact, "loss");
  expect_within(1e-2, features.grad(), exact_features.grad(), "gradient of the features");
  expect_within(1e-2, place - start, exact_weight.grad(), "gradient of the weight");
}

/// Every epilogue, for sizes that are not multiples of a tile, plain and transposed matrices, 16 bits and fp32.
TEST_F(GpuOperators, ComputeProductsWithEpilogues) {
  using cuda::Epilogue, cuda::GemmCall;
  constexpr int64_t kRows = 56, kInner = 104, kColumns = 40;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const auto matrix = [&](int64_t rows, int64_t columns, uint64_t seed, bool transposed) {
      const at::Tensor t = noise({rows, columns}, seed, type);
      return transposed ? t.t().contiguous().t() : t;
    };
    for (const int turned : {0, 1, 2, 3}) {
      const at::Tensor a = matrix(kRows, kInner, 1, turned % 2 == 1), b = matrix(kInner, kColumns, 2, turned > 1);
      const at::Tensor exact = at::matmul(wide(a), wide(b));
      const at::Tensor bias = noise({kColumns}, 3, type), aux = poisoned({kRows, kColumns}, type);
      const at::Tensor out = poisoned({kRows, kColumns}, type);
      cuda::gemm({.a = a, .b = b, .out = out});
      expect_close(out, exact, "plain");
      cuda::gemm({.a = a, .b = b, .out = out, .epilogue = Epilogue::bias, .vector = bias});
      expect_close(out, exact + wide(bias), "bias");
      cuda::gemm({.a = a, .b = b, .out = out, .epilogue = Epilogue::bias_gelu_tanh, .vector = bias, .aux = aux});
      expect_close(aux, exact + wide(bias), "before GELU");
      expect_within(6e-3, out, at::gelu(exact + wide(bias), "tanh"), "GELU");

      const at::Tensor start = noise({kRows, kColumns}, 5, at::kFloat), total = start.clone();
      cuda::gemm({.a = a, .b = b, .out = total, .adds = true});
      expect_within(1e-5, total, wide(start) + exact, "added");
      for (const bool of_a : {true, false}) {
        const at::Tensor of_inner = poisoned({of_a ? kRows : kColumns}, at::kFloat);
        total.copy_(start);
        cuda::gemm({.a = a,
                    .b = b,
                    .out = total,
                    .adds = true,
                    .epilogue = of_a ? Epilogue::sums_of_a : Epilogue::sums_of_b,
                    .vector = of_inner});
        expect_within(1e-5, total, wide(start) + exact, "added, with sums");
        expect_within(1e-5, of_inner, of_a ? wide(a).sum(1) : wide(b).sum(0), "sums over inner");
      }
    }
    // Strided rows, some columns left out: a gradient without the padding of its matrix.
    const at::Tensor padded = noise({kRows, 48}, 6, type), x = noise({kRows, 24}, 7, type);
    const at::Tensor out = poisoned({37, 24}, at::kFloat), used = padded.narrow(1, 0, 37);
    cuda::gemm({.a = used.t(), .b = x, .out = out});
    expect_within(1e-5, out, at::matmul(wide(used).t(), wide(x)), "without padding");
  }
}

/// Between the products of a feed-forward layer's backward pass: many blocks, whose sums a second kernel adds up.
TEST_F(GpuOperators, ReplaceGradientByThatBeforeGeluWithSums) {
  using cuda::ActivationKind;
  for (const Storage& storage : storages()) {
    for (const auto& [rows, width] : {std::pair(1, 2), std::pair(300, 776), std::pair(1000, 40)}) {
      const at::Tensor x = noise({rows, width}, 1, at::kFloat).mul(2).to(storage.type),
                       dy = noise({rows, width}, 2, storage.type);
      for (const auto kind : {ActivationKind::gelu, ActivationKind::gelu_tanh}) {
        const at::Tensor dx = dy.clone(), sums = cuda::to_activation_gradient(x, dx, kind, /*wants_sums=*/true);
        const at::Tensor exact = at::gelu_backward(wide(dy), wide(x), kind == ActivationKind::gelu ? "none" : "tanh");
        expect_close(dx, exact, storage.name);
        expect_close(sums, exact.sum(0), storage.name);
        const at::Tensor again = dy.clone(), sums_again = cuda::to_activation_gradient(x, again, kind, true);
        expect_same_bits({dx.cpu(), sums.cpu()}, {again.cpu(), sums_again.cpu()});
      }
    }
  }
}

/// Rows that no tile divides; matrices plain and transposed.
TEST_F(GpuOperators, ComputeProductsWithGeluInOneKernel) {
  using cuda::ActivationKind;
  constexpr int64_t kIn = 104, kOut = 40;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t rows : {1, 57, 300}) {
      for (const bool transposed : {false, true}) {
        const at::Tensor x = noise({rows, kIn}, 1, type), bias = noise({kOut}, 2, type);
        const at::Tensor dense = noise({kIn, kOut}, 3, type) * 0.1,
                         matrix = transposed ? dense.t().contiguous().t() : dense;
        const at::Tensor product = at::matmul(wide(x), wide(matrix)), exact = product + wide(bias);
        const at::Tensor known = noise({rows, kOut}, 4, type);
        for (const auto kind : {ActivationKind::gelu, ActivationKind::gelu_tanh}) {
          const char* approximate = kind == ActivationKind::gelu ? "none" : "tanh";
          const at::Tensor before = poisoned({rows, kOut}, type), after = poisoned({rows, kOut}, type);
          cuda::gelu_product(x, matrix, bias, kind, before, after);
          expect_close(before, exact, "before GELU");
          expect_close(after, at::gelu(exact, approximate), "GELU");
          for (const bool with_sums : {false, true}) {
            const at::Tensor found = poisoned({rows, kOut}, type),
                             sums = with_sums ? poisoned({kOut}, at::kFloat) : at::Tensor();
            cuda::gelu_gradient_product(x, matrix, known, kind, found, sums);
            const at::Tensor gradient = at::gelu_backward(product, wide(known), approximate);
            expect_close(found, gradient, "gradient");
            if (with_sums) expect_within(1e-3, sums, gradient.sum(0), "sums");
          }
        }
      }
    }
  }
}

/// {x, weight 1, bias 1, weight 2, bias 2, copies}
Tensors feed_forward_layers(at::ScalarType type, bool in_out, bool biased) {
  const auto weight = [&](int64_t in, int64_t out, uint64_t seed) {
    return noise({in_out ? in : out, in_out ? out : in}, seed, at::kFloat) * 0.3;
  };
  const auto bias = [&](int64_t out, uint64_t seed) { return biased ? noise({out}, seed, at::kFloat) : at::Tensor(); };
  Tensors all{noise({3, 50, 16}, 1, type), weight(16, 40, 2), bias(40, 3), weight(40, 24, 4), bias(24, 5)};
  for (size_t i = 1; i < 5; ++i) all.push_back(all[i].defined() ? all[i].to(type) : at::Tensor());
  return all;
}

Tensors exact_feed_forward(const Tensors& t, bool in_out, bool by_tanh) {
  const auto dense = [&](const at::Tensor& x, size_t i) {
    const at::Tensor copy = t[i + 4] + t[i] - t[i].detach(), product = at::matmul(x, in_out ? copy : copy.t());
    return t[i + 1].defined() ? product + (t[i + 5] + t[i + 1] - t[i + 1].detach()) : product;
  };
  return {dense(at::gelu(dense(t[0], 1), by_tanh ? "tanh" : "none"), 3)};
}

TEST_F(GpuOperators, ComputeFeedForwardLayers) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const int kind : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const bool in_out = kind % 2 == 1, biased = kind / 2 % 2 == 1, by_tanh = kind / 4 == 1;
      const Tensors inputs = feed_forward_layers(type, in_out, biased);
      const auto activation = by_tanh ? Activation::gelu_tanh : Activation::gelu;
      compare(
          inputs, 5, gpu::feed_forward(inputs, in_out, activation),
          [=](const Tensors& t) { return exact_feed_forward(t, in_out, by_tanh); }, type == at::kHalf ? 0.7 : 3.5);
    }
  }
  const Tensors inputs = feed_forward_layers(at::kBFloat16, false, true);
  EXPECT_FALSE(gpu::feed_forward(inputs, false, Activation::silu));
}

TEST_F(GpuOperators, AddFeedForwardGradientsInPlace) {
  const Tensors inputs = feed_forward_layers(at::kHalf, true, true);
  const Tensors exact = leaves_of(inputs, 5, /*in_double=*/true);
  for (size_t i = 1; i < 5; ++i) {
    inputs[i].set_requires_grad(true);
    at::Tensor(inputs[i]).mutable_grad() = at::zeros_like(inputs[i]).requires_grad_(false);
  }
  const at::Tensor first = inputs[1].grad(), second = inputs[3].grad();
  gpu::feed_forward(inputs, true, Activation::gelu_tanh)(inputs)[0].sum().backward();
  exact_feed_forward(exact, true, true)[0].sum().backward();
  EXPECT_TRUE(inputs[1].grad().is_same(first) && inputs[3].grad().is_same(second));
  for (size_t i = 1; i < 5; ++i) expect_within(2e-3, inputs[i].grad(), exact[i].grad(), "input " + std::to_string(i));
}

/// {x, three weights, their copies}, neighbours in memory.
Tensors neighbouring_layers(at::ScalarType type) {
  const at::Tensor joined = noise({40, 24}, 2, at::kFloat), copies = joined.to(type);
  Tensors inputs{noise({3, 7, 24}, 1, type)};
  for (const at::Tensor& all : {joined, copies})
    for (const auto& [begin, rows] : {std::pair(0, 16), std::pair(16, 8), std::pair(24, 16)})
      inputs.push_back(all.narrow(0, begin, rows));
  return inputs;
}

Tensors exact_each(const Tensors& t) {
  Tensors results;
  for (size_t i = 1; i <= 3; ++i) results.push_back(exact_dense_layer({t[0], t[i], {}, t[i + 3], {}}, false)[0]);
  return results;
}

TEST_F(GpuOperators, ComputeNeighbouringLayersAsOneProduct) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const Tensors inputs = neighbouring_layers(type);
    compare(inputs, 4, gpu::linear_each(inputs), exact_each);
  }
  Tensors apart = neighbouring_layers(at::kBFloat16);
  apart[6] = apart[6].clone();
  EXPECT_FALSE(gpu::linear_each(apart));
}

TEST_F(GpuOperators, AddGradientsOfNeighboursInPlace) {
  for (const bool are_neighbours : {true, false}) {
    const Tensors inputs = neighbouring_layers(at::kBFloat16);
    const Tensors exact = leaves_of(inputs, 4, /*in_double=*/true);
    const at::Tensor start = noise({40, 24}, 5, at::kFloat), places = start.clone();
    Tensors leaves = inputs;
    const std::vector<int64_t> begins{0, 0, 16, 24};
    for (size_t i = 1; i <= 3; ++i) {
      const at::Tensor place = places.narrow(0, begins[i], inputs[i].size(0));
      leaves[i] = inputs[i].detach().set_requires_grad(true);
      leaves[i].mutable_grad() = are_neighbours ? place : place.clone();
    }
    const OpImpl custom = gpu::linear_each(leaves);
    for (int pass = 0; pass < 2; ++pass) {
      const Tensors y = custom(leaves);
      (y[0].sum() + 2 * y[1].sum() + 3 * y[2].sum()).backward();
    }
    const Tensors y = exact_each(exact);
    (y[0].sum() + 2 * y[1].sum() + 3 * y[2].sum()).backward();
    for (size_t i = 1; i <= 3; ++i) {
      const at::Tensor from = start.narrow(0, begins[i], inputs[i].size(0));
      expect_within(1e-5, leaves[i].grad(), wide(from) + 2 * exact[i].grad(), "gradient " + std::to_string(i));
    }
    if (are_neighbours) {
      EXPECT_TRUE(leaves[1].grad().is_alias_of(places));
    }
  }
}

TEST_F(GpuOperators, LeaveDenseLayersInFp32OrUncopiedToAten) {
  Tensors inputs = dense_layer(at::kBFloat16, false);
  EXPECT_TRUE(gpu::linear(inputs, false));
  inputs[3] = at::Tensor();
  EXPECT_FALSE(gpu::linear(inputs, false));
  EXPECT_FALSE(gpu::linear({noise({3, 24}, 1, at::kFloat), inputs[1], {}, {}, {}}, false));
}

// If an activation overwrites a view, autograd copies its gradients.
TEST_F(GpuOperators, ReturnOwnTensorsFromDenseLayers) {
  Tensors inputs = dense_layer(at::kBFloat16, false);
  inputs[1].set_requires_grad(true);
  const OpImpl custom = gpu::linear(inputs, false);
  EXPECT_FALSE(custom(inputs)[0].is_view());
  inputs[0] = inputs[0].view({21, 24});
  EXPECT_FALSE(custom(inputs)[0].is_view());
}

}  // namespace
}  // namespace gputrain::ops
