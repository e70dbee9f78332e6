// cuDNN's fused convolutions, computed by ATen on the CPU.
#include <ATen/TensorOperators.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/stack.h>

#include "../../../src/ops/cuda/cudnn/conv_sums.hpp"
#include "support/lanes/emulated_convolution.hpp"

namespace gputrain::testing_support {

CalledSums& called_sums() {
  static CalledSums calls;
  return calls;
}

}  // namespace gputrain::testing_support

namespace gputrain::ops::cuda {
namespace {

at::Tensor as_rows(const at::Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); }

/// Widens 16-bit values: cuDNN rounds the result once, while ATen on some CPUs rounds each product of a filter.
at::Tensor unrounded(const at::Tensor& x) { return x.element_size() == 2 ? x.to(at::kFloat) : x; }

/// Sums of x and of x times y, per channel in fp32.
at::Tensor sums_of(const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor wide = x.to(at::kDouble);
  return at::stack({wide.sum({0, 2, 3}), (wide * y.to(at::kDouble)).sum({0, 2, 3})}).to(at::kFloat);
}

at::Tensor beside(const at::Tensor& per_channel) { return per_channel.view({1, -1, 1, 1}); }

}  // namespace

bool takes_sums(const at::Tensor&) { return true; }

bool has_sums(const at::Tensor&, const Convolution&) { return true; }

SummedImages convolution_sums(const at::Tensor& x, const Convolution& conv) {
  ++testing_support::called_sums().forward;
  const at::Tensor y =
      at::conv2d(unrounded(x), unrounded(conv.weight), {}, {conv.stride, conv.stride}, {conv.padding, conv.padding});
  const at::Tensor rounded = as_rows(y.to(x.scalar_type()));
  return {.y = rounded, .sums = sums_of(rounded, rounded)};
}

bool has_gradient_sums(const at::Tensor&, const Convolution& conv) { return conv.stride == 1; }

SummedImages convolution_gradient_sums(const at::Tensor& dy, const at::Tensor& z, const at::Tensor& moments,
                                       const Convolution& conv) {
  ++testing_support::called_sums().backward;
  const at::Tensor dx = std::get<0>(at::convolution_backward(unrounded(dy), unrounded(z), unrounded(conv.weight),
                                                             c10::nullopt, {1, 1}, {conv.padding, conv.padding}, {1, 1},
                                                             false, {0, 0}, 1, {true, false, false}));
  const at::Tensor wide = z.to(at::kFloat), passed = wide * beside(moments[2]) + beside(moments[3]) > 0;
  const at::Tensor g = as_rows((dx * passed).to(z.scalar_type()));
  return {.y = g, .sums = sums_of(g, wide - beside(moments[0]))};
}

}  // namespace gputrain::ops::cuda
