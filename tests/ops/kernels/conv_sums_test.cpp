// cuDNN's fused convolutions against ATen in fp64; without a GPU, ATen computes them.
#include "../../../src/ops/cuda/cudnn/conv_sums.hpp"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "../../../src/ops/cuda/autograd/image_norm.hpp"
#include "ops/kernels/kernel_case.hpp"

namespace gputrain::ops::cuda {
namespace {

using namespace testing_support;

struct ConvCase {
  int64_t images, in, height, width, out, kernel, stride = 1;
};
// Sizes that are not multiples of a tile; channel counts as in real convolutions.
const std::vector<ConvCase> kConvCases{{3, 24, 9, 7, 40, 3},     {2, 64, 5, 5, 16, 1}, {3, 16, 11, 9, 24, 3, 2},
                                       {2, 32, 7, 10, 48, 1, 2}, {1, 8, 13, 13, 8, 5}, {2, 3, 15, 17, 16, 7, 2}};

class ConvolutionSums : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_kernel_device()) GTEST_SKIP() << "no GPU here";
  }
};

at::Tensor images_of(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type) {
  return noise(sizes, seed, type).contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor sums_of(const at::Tensor& x, const at::Tensor& y) {
  return at::stack({x.sum({0, 2, 3}), (x * y).sum({0, 2, 3})});
}

/// Allowed error: rounding of many 16-bit values, which mostly averages out in sums; fp32 sums of exact values.
double bound_of(const at::Tensor& x) { return x.element_size() == 2 ? 3e-3 : 1e-5; }

TEST_F(ConvolutionSums, MatchSumsOfTheResult) {
  for (const Storage& storage : storages()) {
    for (const ConvCase& c : kConvCases) {
      const at::Tensor x = images_of({c.images, c.in, c.height, c.width}, 1, storage.type),
                       weight = images_of({c.out, c.in, c.kernel, c.kernel}, 2, storage.type);
      if (!takes_sums(x) || !has_sums(x, {weight, c.stride})) continue;
      SCOPED_TRACE(testing::Message() << storage.name << ", filters of " << c.kernel << ", stride " << c.stride);
      const SummedImages found = convolution_sums(x, {weight, c.stride, c.kernel / 2});
      const at::Tensor expected =
          at::conv2d(wide(x), wide(weight), {}, {c.stride, c.stride}, {c.kernel / 2, c.kernel / 2});
      EXPECT_TRUE(is_image(found.y));
      expect_close(found.y, expected, "y");
      expect_within(bound_of(x), found.sums, sums_of(expected, expected), "sums");
    }
  }
}

TEST_F(ConvolutionSums, MatchSumsOfGradientThroughRelu) {
  for (const Storage& storage : storages()) {
    for (const ConvCase& c : kConvCases) {
      const at::Tensor z = images_of({c.images, c.in, c.height, c.width}, 1, storage.type),
                       weight = images_of({c.out, c.in, c.kernel, c.kernel}, 2, storage.type);
      const Convolution conv{weight, c.stride, c.kernel / 2};
      if (!takes_sums(z) || !has_gradient_sums(z, conv)) continue;
      SCOPED_TRACE(testing::Message() << storage.name << ", filters of " << c.kernel);
      const auto on_device = at::device(kernel_device()).dtype(at::kFloat);
      const at::Tensor moments = batch_moments_of(z, {},
                                                  {noise({c.in}, 3, at::kFloat), noise({c.in}, 4, at::kFloat),
                                                   at::zeros({c.in}, on_device), at::ones({c.in}, on_device)});
      const at::Tensor x = wide_leaf(z), y = at::conv2d(x, wide(weight), {}, {1, 1}, {c.kernel / 2, c.kernel / 2});
      const at::Tensor dy = images_of(y.sizes(), 5, storage.type);
      (y * wide(dy)).sum().backward();
      const auto row = [&](int64_t i) { return wide(moments[i]).view({1, -1, 1, 1}); };
      const at::Tensor g = x.grad() * (wide(z) * row(2) + row(3) > 0);
      const SummedImages found = convolution_gradient_sums(dy, z, moments, conv);
      EXPECT_TRUE(is_image(found.y));
      expect_close(found.y, g, "g");
      expect_within(bound_of(z), found.sums, sums_of(g, wide(z) - row(0)), "sums");
    }
  }
}

TEST_F(ConvolutionSums, KeepFp32DigitsFarFromZero) {
  for (const Storage& storage : storages()) {
    // Mean 30, standard deviation about 1: the difference of sums loses three of seven digits.
    at::Tensor x = images_of({8, 8, 16, 16}, 1, at::kFloat).mul_(0.35), weight = at::ones({8, 8, 1, 1}, x.options());
    x.select(1, 0).add_(30);
    x = x.to(storage.type);
    weight = weight.to(storage.type).contiguous(at::MemoryFormat::ChannelsLast);
    if (!takes_sums(x)) continue;
    const SummedImages found = convolution_sums(x, {weight, 1, 0});
    const at::Tensor none = at::zeros({8}, x.options().dtype(at::kFloat)), one = at::ones_like(none);
    const at::Tensor moments = batch_moments_of(found.y, found.sums, {one, none, none.clone(), one.clone()});
    const at::Tensor exact = at::conv2d(wide(x), wide(weight));
    expect_within(1e-4, moments[0], exact.mean({0, 2, 3}), "mean");
    const at::Tensor deviation = exact.var({0, 2, 3}, /*unbiased=*/false).add(1e-5).sqrt();
    expect_within(storage.type == at::kFloat ? 2e-4 : 1e-2, moments[1], deviation.reciprocal(), "rstd");
  }
}

TEST_F(ConvolutionSums, GiveNoNegativeVarianceForEqualValues) {
  for (const float value : {0.1F, 3.3F, 1234.5F}) {
    const at::Tensor x = images_of({2, 4, 5, 7}, 1, at::kFloat).fill_(value);
    at::Tensor sums = at::stack({x.sum({0, 2, 3}), x.square().sum({0, 2, 3})});
    sums[1].mul_(1 - 1e-6);  // simulates rounding
    const at::Tensor none = at::zeros({4}, x.options()), one = at::ones({4}, x.options()), variance = one.clone();
    const at::Tensor moments = batch_moments_of(x, sums, {one, none, none.clone(), variance});
    expect_within(1e-6, moments[1], wide(one) / std::sqrt(1e-5), "rstd");
    expect_within(1e-6, variance, wide(one) * 0.9, "running variance");
  }
}

}  // namespace
}  // namespace gputrain::ops::cuda
