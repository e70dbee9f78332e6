#include "../../../src/ops/cuda/kernels/max_pool.hpp"

#include <array>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <gtest/gtest.h>

#include "ops/kernels/kernel_case.hpp"

namespace gputrain::ops::cuda {
namespace {

using namespace testing_support;

struct PoolTensors {
  at::Tensor x, y, index, dy, dx;
};

PoolTensors pool(const at::Tensor& x, const Storage& storage) {
  const int64_t batch = x.size(0), height = x.size(1), width = x.size(2), channels = x.size(3);
  const std::vector<int64_t> out{batch, (height + 1) / 2, (width + 1) / 2, channels};
  PoolTensors t{.x = x,
                .y = poisoned(out, storage.type),
                .index = poisoned(out, at::kChar),
                .dy = noise(out, 2, storage.type),
                .dx = poisoned(x.sizes(), storage.type)};
  const MaxPool p{.element = storage.element,
                  .batch = batch,
                  .height = height,
                  .width = width,
                  .channels = channels,
                  .x = pointer(t.x),
                  .y = pointer(t.y),
                  .index = pointer<int8_t>(t.index),
                  .dy = pointer(t.dy),
                  .dx = pointer(t.dx)};
  max_pool_forward(p, nullptr);
  max_pool_backward(p, nullptr);
  return t;
}

TEST(MaxPoolKernels, MatchPyTorchWithGradient) {
  for (const Storage& storage : storages()) {
    for (const auto& shape :
         std::vector<std::array<int64_t, 4>>{{2, 7, 10, 16}, {1, 1, 1, 3}, {3, 2, 5, 5}, {1, 8, 8, 64}}) {
      // Few distinct values, so that every window has ties.
      const PoolTensors t = pool(noise(shape, 1, at::kFloat).mul(2).round().to(storage.type), storage);
      const at::Tensor leaf = wide_leaf(t.x);
      const at::Tensor y = std::get<0>(at::max_pool2d_with_indices(leaf.permute({0, 3, 1, 2}), {3, 3}, {2, 2}, {1, 1}));
      const at::Tensor rows = y.permute({0, 2, 3, 1});
      (rows * wide(t.dy)).sum().backward();
      EXPECT_TRUE(wide(t.y).equal(rows)) << storage.name;
      expect_close(t.dx, leaf.grad(), storage.name);
      EXPECT_LT(t.index.max().item<int>(), 9);
    }
  }
}

TEST(MaxPoolKernels, PassNanOn) {
  const at::Tensor x = noise({1, 4, 4, 4}, 1, at::kFloat);
  x[0][1][1].fill_(std::nan(""));
  EXPECT_TRUE(pool(x, storages()[0]).y.isnan().all().item<bool>());  // it is in all four windows
}

}  // namespace
}  // namespace gputrain::ops::cuda
