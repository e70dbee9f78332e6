#include "../../../src/ops/cuda/kernels/embedding.hpp"

#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "ops/kernels/kernel_case.hpp"

namespace gputrain::ops::cuda {
namespace {

using namespace testing_support;

at::Tensor gradient(const at::Tensor& tokens, const at::Tensor& dy, const at::Tensor& start, Element element,
                    bool adds) {
  const auto [sorted, positions] = tokens.sort(/*stable=*/std::optional<bool>(true), 0, /*descending=*/false);
  const at::Tensor dweight = start.clone();
  embedding_gradient({.element = element,
                      .count = tokens.size(0),
                      .rows = start.size(0),
                      .channels = start.size(1),
                      .tokens = pointer<int64_t>(sorted),
                      .positions = pointer<int64_t>(positions),
                      .dy = pointer(dy),
                      .weight_element = start.scalar_type() == at::kFloat ? Element::fp32 : Element::bf16,
                      .dweight = pointer(dweight),
                      .adds = adds},
                     nullptr);
  return dweight;
}

void check(int64_t count, int64_t rows, int64_t channels, bool adds) {
  for (const Storage& storage : storages()) {
    const at::Tensor tokens = at::randint(rows, {count}, at::TensorOptions().dtype(at::kLong));
    tokens.narrow(0, 0, count / 2).fill_(rows - 1);  // one frequent token
    const at::Tensor dy = noise({count, channels}, 1, storage.type);
    const at::Tensor start = adds ? at::ones({rows, channels}, at::kFloat) : at::zeros({rows, channels}, at::kFloat);
    const at::Tensor ours = gradient(tokens, dy, start, storage.element, adds);
    expect_within(1e-6, ours, wide(start).index_add(0, tokens, wide(dy)), storage.name);
    expect_same_bits({ours}, {gradient(tokens, dy, start, storage.element, adds)});
  }
}

TEST(EmbeddingKernel, AddsUpRowsOfEachToken) {
  check(1, 5, 8, false);
  check(100, 7, 768, false);
  check(60, 50, 11, false);
}

TEST(EmbeddingKernel, AddsToExistingValues) { check(40, 9, 96, true); }

TEST(EmbeddingKernel, WritesGradientsOfNarrowTables) {
  for (const int64_t channels : {96, 11}) {
    const at::Tensor tokens = at::randint(9, {40}, at::TensorOptions().dtype(at::kLong));
    const at::Tensor dy = noise({40, channels}, 1, at::kBFloat16), start = at::ones({9, channels}, at::kBFloat16);
    for (const bool adds : {false, true}) {
      const at::Tensor from = adds ? start : at::zeros({9, channels}, at::kBFloat16);
      expect_close(gradient(tokens, dy, from, Element::bf16, adds), wide(from).index_add(0, tokens, wide(dy)), "bf16");
    }
  }
}

}  // namespace
}  // namespace gputrain::ops::cuda
