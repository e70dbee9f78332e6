#include "gputrain/ops/linear.hpp"

#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "gputrain/device/working_copy.hpp"

namespace gputrain::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A weight's copy on the autograd graph in place of its cast: the same gradient.
struct ReadCopy : torch::autograd::Function<ReadCopy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight, const at::Tensor& copy) {
    context->saved_data["type"] = weight.scalar_type();
    return at::Tensor(copy.tensor_data());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0].to(context->saved_data["type"].toScalarType()), {}};
  }
};

/// A parameter in a type: the copy of it that is kept, or a cast.
at::Tensor operand(const at::Tensor& weight, at::ScalarType type) {
  if (!weight.defined() || weight.scalar_type() == type) return weight;
  const at::Tensor copy = device::working_view(weight, type);
  if (!copy.defined()) return weight.to(type);
  return at::GradMode::is_enabled() && weight.requires_grad() ? ReadCopy::apply(weight, copy) : copy;
}

}  // namespace

at::Tensor cast(const at::Tensor& tensor, at::ScalarType type) {
  // Skips the dispatcher where there is nothing to do, which is everywhere in fp32.
  return !tensor.defined() || tensor.scalar_type() == type ? tensor : tensor.to(type);
}

at::Tensor linear(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(cast(x, policy.compute), operand(weight, policy.compute), operand(bias, policy.compute));
}

at::Tensor linear_in_out(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor rows = cast(x, policy.compute).reshape({-1, x.size(-1)});
  const at::Tensor matrix = operand(weight, policy.compute);
  const at::Tensor product =
      bias.defined() ? at::addmm(operand(bias, policy.compute), rows, matrix) : at::mm(rows, matrix);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(1);
  return product.view(sizes);
}

at::Tensor linear_padded(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, int64_t columns) {
  const int64_t missing = columns - weight.size(0);
  const at::Tensor matrix = operand(weight, policy.compute);
  return at::linear(cast(x, policy.compute), missing > 0 ? at::constant_pad_nd(matrix, {0, 0, 0, missing}) : matrix);
}

at::Tensor conv2d(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  int64_t stride, int64_t padding) {
  return at::conv2d(cast(x, policy.compute), operand(weight, policy.compute), operand(bias, policy.compute),
                    {stride, stride}, {padding, padding});
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight) { return at::embedding(weight, tokens); }

}  // namespace gputrain::ops
