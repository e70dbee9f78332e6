// Convolutions with our weight gradient against ATen in fp64, on any CPU, whether or not they would be selected there.
#include "../../src/ops/cpu/conv2d.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "../../src/ops/cpu/float_kernels.hpp"
#include "gputrain/ops/linear.hpp"
#include "ops/compare.hpp"

namespace gputrain::ops {
namespace {

using testing_support::random_leaf;
using testing_support::relative_error;

struct Shape {
  int64_t images, in, height, width, out, kernel, stride, padding;
};

std::string name_of(const Shape& s) {
  return std::to_string(s.images) + " images of " + std::to_string(s.in) + " x " + std::to_string(s.height) + " x " +
         std::to_string(s.width) + ", " + std::to_string(s.out) + " out, kernel " + std::to_string(s.kernel) +
         ", stride " + std::to_string(s.stride) + ", padding " + std::to_string(s.padding);
}

const std::vector<Shape> kShapes{
    {2, 16, 5, 7, 6, 3, 1, 1},    // full panels
    {3, 17, 6, 4, 13, 3, 1, 1},   // one column more than a panel
    {40, 20, 6, 6, 9, 3, 1, 1},   // several images per block, the last block not full
    {2, 16, 37, 40, 7, 3, 1, 1},  // several blocks per image, each last one not full
    {1, 16, 3, 600, 5, 3, 1, 1},  // a row longer than a block
    {3, 24, 9, 8, 8, 3, 2, 1},    // the last input column is not read
    {2, 16, 60, 56, 7, 3, 2, 1},  // several blocks per image, with stride
    {1, 20, 90, 60, 7, 3, 3, 1}, {2, 18, 11, 13, 8, 5, 3, 2}, {4, 32, 7, 7, 12, 1, 2, 0},
    {2, 16, 9, 9, 6, 7, 2, 3},   {2, 16, 4, 4, 6, 3, 1, 4},  // whole rows of padding
    {2, 16, 3, 3, 5, 3, 1, 0},                               // one pixel
};

at::Tensor pixel_by_pixel(const at::Tensor& x) { return x.detach().contiguous(at::MemoryFormat::ChannelsLast); }

at::Tensor single(const at::Tensor& exact) { return exact.detach().to(at::kFloat).set_requires_grad(true); }

at::Tensor images_of(const Shape& s) { return pixel_by_pixel(random_leaf({s.images, s.in, s.height, s.width}, 1)); }

at::Tensor weight_of(const Shape& s) {
  return pixel_by_pixel(random_leaf({s.out, s.in, s.kernel, s.kernel}, 2)).set_requires_grad(true);
}

TEST(OwnConv2d, MatchesReferenceAndGradients) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(name_of(s));
    for (const bool has_bias : {false, true}) {
      const at::Tensor x = images_of(s).set_requires_grad(true), weight = weight_of(s), bias = random_leaf({s.out}, 3);
      const std::vector<at::Tensor> exact{x, weight, bias}, found{single(x), single(weight), single(bias)};
      const at::Tensor y = cpu::conv2d(found[0], found[1], has_bias ? found[2] : at::Tensor(), s.stride, s.padding);
      const at::Tensor expected =
          at::conv2d(x, weight, has_bias ? bias : at::Tensor(), {s.stride, s.stride}, {s.padding, s.padding});
      ASSERT_EQ(y.sizes(), expected.sizes());
      EXPECT_LT(relative_error(y, expected), 1e-6);
      const at::Tensor weights = random_leaf(expected.sizes(), 4).detach();  // a different weight per element, NCHW
      (expected * weights).sum().backward();
      (y * weights.to(at::kFloat)).sum().backward();
      for (size_t i = 0; i < (has_bias ? 3 : 2); ++i) {
        EXPECT_LT(relative_error(found[i].grad(), exact[i].grad()), 2e-6) << "input " << i;
        EXPECT_EQ(found[i].grad().strides(), exact[i].strides()) << "input " << i;
      }
    }
  }
}

TEST(OwnConv2d, GivesGradientOfEitherInputAlone) {
  const Shape s = kShapes[0];
  const at::Tensor x = images_of(s).set_requires_grad(true), weight = weight_of(s);
  at::conv2d(x, weight, {}, {s.stride, s.stride}, {s.padding, s.padding}).square().sum().backward();
  const auto found = [&](const at::Tensor& images, const at::Tensor& of) {
    cpu::conv2d(images, of, {}, s.stride, s.padding).square().sum().backward();
  };
  const at::Tensor learned = single(weight), hidden = single(x);
  found(x.detach().to(at::kFloat), learned);  // images from a loader need no gradient
  found(hidden, weight.detach().to(at::kFloat));
  EXPECT_LT(relative_error(learned.grad(), weight.grad()), 2e-6);
  EXPECT_LT(relative_error(hidden.grad(), x.grad()), 2e-6);
}

TEST(OwnConv2d, IsUsedByOperatorWhereFaster) {
  const Shape s{2, 32, 9, 8, 6, 3, 2, 1};
  ASSERT_TRUE(cpu::conv2d_takes(images_of(s).to(at::kFloat), single(weight_of(s)), 1, 1));
  const std::vector<at::Tensor> exact{images_of(s).set_requires_grad(true), weight_of(s), random_leaf({s.out}, 3)},
      found{single(exact[0]), single(exact[1]), single(exact[2])};
  at::conv2d(exact[0], exact[1], exact[2], {s.stride, s.stride}, {s.padding, s.padding}).square().sum().backward();
  conv2d(policy_of(Precision::fp32), found[0], found[1], found[2], s.stride, s.padding).square().sum().backward();
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_LT(relative_error(found[i].grad(), exact[i].grad()), 2e-6) << "input " << i;
  }
}

TEST(OwnConv2d, AcceptsOnlyItsCases) {
  const auto images = [](int64_t channels) { return pixel_by_pixel(random_leaf({2, channels, 5, 7}, 1, at::kFloat)); };
  const auto weight = [](int64_t in, int64_t width = 3) {
    return pixel_by_pixel(random_leaf({6, in, 3, width}, 2, at::kFloat));
  };
  EXPECT_TRUE(cpu::conv2d_takes(images(32), weight(32), 1, 1));
  EXPECT_FALSE(cpu::conv2d_takes(images(31), weight(31), 1, 1));
  EXPECT_FALSE(cpu::conv2d_takes(images(32).contiguous(), weight(32), 1, 1));
  EXPECT_FALSE(cpu::conv2d_takes(images(32), weight(32).contiguous(), 1, 1));
  EXPECT_FALSE(cpu::conv2d_takes(images(32).to(at::kDouble), weight(32), 1, 1));
  EXPECT_FALSE(cpu::conv2d_takes(images(32), weight(32).to(at::kDouble), 1, 1));
  EXPECT_FALSE(cpu::conv2d_takes(images(32), weight(32), 2, 1));
  EXPECT_FALSE(cpu::conv2d_takes(images(32), weight(16), 1, 2));
  EXPECT_FALSE(cpu::conv2d_takes(images(32), weight(32, 1), 1, 1));
  EXPECT_FALSE(cpu::conv2d_takes(images(32).slice(0, 0, 0), weight(32), 1, 1));
}

/// Runs the kernel alone; it must not write past its workspace.
at::Tensor gradient_by(const cpu::FloatKernels& set, int threads, const Shape& s, const at::Tensor& x,
                       const at::Tensor& dy) {
  const cpu::ConvGradient conv{.images = s.images,
                               .in_height = s.height,
                               .in_width = s.width,
                               .in_channels = s.in,
                               .out_height = dy.size(2),
                               .out_width = dy.size(3),
                               .out_channels = s.out,
                               .kernel = s.kernel,
                               .stride = s.stride,
                               .padding = s.padding,
                               .x = x.const_data_ptr<float>(),
                               .dy = dy.const_data_ptr<float>()};
  constexpr float kMark = 12345;
  const int64_t size = set.conv_gradient_workspace(conv), beyond = 64;
  at::Tensor workspace = at::full_like(at::empty({size + beyond}, at::kFloat), kMark);
  at::Tensor dweight = at::full_like(at::empty({s.out, s.kernel, s.kernel, s.in}, at::kFloat), kMark);
  set.conv_weight_gradient(threads, conv, workspace.mutable_data_ptr<float>(), dweight.mutable_data_ptr<float>());
  EXPECT_TRUE((workspace.slice(0, size) == kMark).all().item<bool>());
  return dweight.permute({0, 3, 1, 2});
}

TEST(OwnConv2d, GivesSameBitsOnAnyThreadCount) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(name_of(s));
    const at::Tensor x = images_of(s), weight = weight_of(s);
    const at::Tensor y = at::conv2d(x, weight, {}, {s.stride, s.stride}, {s.padding, s.padding});
    const at::Tensor dy = pixel_by_pixel(random_leaf(y.sizes(), 3));
    (y * dy).sum().backward();
    const at::Tensor x_single = x.to(at::kFloat), dy_single = dy.to(at::kFloat);
    for (const auto* const* set = cpu::available_kernels(); *set != nullptr; ++set) {
      const at::Tensor one = gradient_by(**set, 1, s, x_single, dy_single);
      EXPECT_LT(relative_error(one, weight.grad()), 2e-6) << (*set)->name;
      EXPECT_TRUE(one.equal(gradient_by(**set, 3, s, x_single, dy_single))) << (*set)->name;
    }
  }
}

}  // namespace
}  // namespace gputrain::ops
