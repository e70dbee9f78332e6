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

#include "gpu.hpp"
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

/// What a product reads of a parameter: its copy, in its place on the graph, or a cast.
at::Tensor operand(const at::Tensor& weight, const at::Tensor& copy, at::ScalarType type) {
  if (!copy.defined()) return cast(weight, type);
  return at::GradMode::is_enabled() && weight.requires_grad() ? ReadCopy::apply(weight, copy) : copy;
}

at::Tensor copy_of(const at::Tensor& weight, at::ScalarType type) {
  return weight.defined() && weight.scalar_type() != type ? device::working_view(weight, type) : at::Tensor();
}

at::Tensor operand(const at::Tensor& weight, at::ScalarType type) {
  return operand(weight, copy_of(weight, type), type);
}

at::Tensor times_in_out(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& bias) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const at::Tensor product = bias.defined() ? at::addmm(bias, rows, matrix) : at::mm(rows, matrix);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = matrix.size(1);
  return product.view(sizes);
}

/// With rows of zeros below it.
at::Tensor padded(const at::Tensor& matrix, int64_t rows) {
  const int64_t missing = rows - matrix.size(0);
  return missing > 0 ? at::constant_pad_nd(matrix, {0, 0, 0, missing}) : matrix;
}

struct Dense {
  at::Tensor weight, bias;
  bool in_out = false;
  int64_t columns = 0;  // of the result at least; 0: as the weight has
};

at::Tensor dense(const Policy& policy, const at::Tensor& x, const Dense& layer) {
  const auto& [weight, bias, in_out, columns] = layer;
  const at::ScalarType type = policy.compute;
  const Way plain = [in_out = in_out, columns = columns](const Tensors& t) {
    const at::ScalarType read = t[0].scalar_type();
    const at::Tensor copy = columns > 0 && t[3].defined() ? t[3].narrow(0, 0, t[1].size(0)) : t[3];
    const at::Tensor matrix = operand(t[1], copy, read), added = operand(t[2], t[4], read);
    return Tensors{in_out ? times_in_out(t[0], matrix, added) : at::linear(t[0], padded(matrix, columns), added)};
  };
  Tensors inputs{cast(x, type), weight, bias, copy_of(weight, type), copy_of(bias, type)};
  if (!gpu::is_here(inputs[0])) return plain(inputs)[0];
  if (inputs[3].defined()) inputs[3] = padded(inputs[3], columns);
  return run(in_out ? "linear_in_out" : "linear", inputs, {.batched = 1, .differentiable = 3},
             gpu::linear(inputs, in_out), plain)[0];
}

}  // namespace

at::Tensor cast(const at::Tensor& tensor, at::ScalarType type) {
  // Skips the dispatcher where there is nothing to do, which is everywhere in fp32.
  return !tensor.defined() || tensor.scalar_type() == type ? tensor : tensor.to(type);
}

at::Tensor linear(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return dense(policy, x, {.weight = weight, .bias = bias});
}

at::Tensor linear_in_out(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return dense(policy, x, {.weight = weight, .bias = bias, .in_out = true});
}

at::Tensor linear_padded(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, int64_t columns) {
  return dense(policy, x, {.weight = weight, .bias = {}, .columns = columns});
}

at::Tensor conv2d(const Policy& policy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  int64_t stride, int64_t padding) {
  return at::conv2d(cast(x, policy.compute), operand(weight, policy.compute), operand(bias, policy.compute),
                    {stride, stride}, {padding, padding});
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight) { return at::embedding(weight, tokens); }

}  // namespace gputrain::ops
