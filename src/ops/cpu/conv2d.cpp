#include "conv2d.hpp"

#include <optional>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../dispatch/kernel_autotuner.hpp"
#include "float_kernels.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/ops/recorded.hpp"

namespace gputrain::ops::cpu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kLeastChannels = 32;  // of an image: with fewer, copies and padded vectors cost more than they save

at::Tensor weight_gradient(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& dy, int64_t stride,
                           int64_t padding) {
  const ConvGradient conv{.images = x.size(0),
                          .in_height = x.size(2),
                          .in_width = x.size(3),
                          .in_channels = x.size(1),
                          .out_height = dy.size(2),
                          .out_width = dy.size(3),
                          .out_channels = dy.size(1),
                          .kernel = weight.size(2),
                          .stride = stride,
                          .padding = padding,
                          .x = x.const_data_ptr<float>(),
                          .dy = dy.const_data_ptr<float>()};
  const FloatKernels& kernels = float_kernels();
  const at::Tensor workspace = at::empty({kernels.conv_gradient_workspace(conv)}, x.options());
  at::Tensor dweight = at::empty_like(weight);  // also in NHWC order
  kernels.conv_weight_gradient(at::get_num_threads(), conv, workspace.mutable_data_ptr<float>(),
                               dweight.mutable_data_ptr<float>());
  return dweight;
}

struct Conv2d : torch::autograd::Function<Conv2d> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, int64_t stride, int64_t padding) {
    context->save_for_backward({x, weight});
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["has_bias"] = bias.has_value();
    return at::conv2d(x, weight, bias, {stride, stride}, {padding, padding});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "a convolution with our weight gradient has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], dy = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    const int64_t stride = context->saved_data["stride"].toInt(), padding = context->saved_data["padding"].toInt();
    variable_list found(5);
    if (context->needs_input_grad(0)) {
      found[0] = std::get<0>(at::convolution_backward(dy, x, weight, std::nullopt, {stride, stride}, {padding, padding},
                                                      {1, 1}, /*transposed=*/false, {0, 0}, /*groups=*/1,
                                                      {true, false, false}));
    }
    if (context->needs_input_grad(1)) found[1] = weight_gradient(x, weight, dy, stride, padding);
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) found[2] = dy.sum({0, 2, 3});
    return found;
  }
};

}  // namespace

bool own_conv_gradient_is_faster_here() {
  static const bool is = device::vector_units() == device::VectorUnits::avx2 && !takes_aten_only();
  return is;
}

bool conv2d_takes(const at::Tensor& x, const at::Tensor& weight, int64_t dilation, int64_t groups) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat && x.dim() == 4 &&
         x.numel() > 0 && x.is_contiguous(at::MemoryFormat::ChannelsLast) && x.size(1) >= kLeastChannels &&
         weight.is_contiguous(at::MemoryFormat::ChannelsLast) && weight.size(2) == weight.size(3) && dilation == 1 &&
         groups == 1 && !is_recorded();
}

at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride,
                  int64_t padding) {
  return Conv2d::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, stride, padding);
}

}  // namespace gputrain::ops::cpu
