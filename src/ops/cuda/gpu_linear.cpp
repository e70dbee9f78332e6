#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../gpu.hpp"
#include "gputrain/core/error.hpp"
#include "launching.hpp"
#include "product.hpp"

namespace gputrain::ops {
namespace cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Whether a parameter's gradient has a place that it can be added to in the backward pass.
bool has_place(const at::Tensor& parameter) {
  if (!parameter.is_leaf() || !parameter.grad().defined()) return false;
  return parameter.grad().is_contiguous() && parameter.grad().scalar_type() == at::kFloat;
}

/// The fp32 gradient a^T b of a weight [a's columns, b's columns]: added to its place, and then undefined, or made.
at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b) {
  const bool adds = has_place(weight);
  const at::Tensor out = adds ? weight.grad() : at::empty(weight.sizes(), weight.options());
  multiply({.a = a.t(), .b = b, .out = out, .adds = adds});
  return adds ? at::Tensor() : out;
}

/// y = x matrix + bias, with the gradients of weight and bias in fp32.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  /// x [rows, in]; the weight and its copy, which is read, [out, in] or [in, out]; a copy may have more rows.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& copy,
                            const std::optional<at::Tensor>& bias_copy, bool in_out) {
    context->save_for_backward({x, weight, bias.value_or(at::Tensor()), copy});
    context->saved_data["in_out"] = in_out;
    const at::Tensor matrix = in_out ? copy : copy.t();
    return bias_copy ? at::addmm(*bias_copy, x, matrix) : at::mm(x, matrix);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused dense layer has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &copy = saved[3];
    const at::Tensor dy = gradients[0].contiguous();
    const bool in_out = context->saved_data["in_out"].toBool();
    variable_list results(6);
    if (context->needs_input_grad(0)) results[0] = at::mm(dy, in_out ? copy.t() : copy);
    results[1] = in_out ? weight_gradient(weight, x, dy) : weight_gradient(weight, dy.narrow(1, 0, weight.size(0)), x);
    if (bias.defined()) results[2] = dy.sum({0}, /*keepdim=*/false, bias.scalar_type());
    return results;
  }
};

bool is_16_bits(const at::Tensor& x) { return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf; }

}  // namespace
}  // namespace cuda

namespace gpu {
namespace {

std::optional<at::Tensor> given(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace

Way linear(const Tensors& inputs, bool in_out) {
  const at::Tensor &x = inputs[0], &weight = inputs[1], &copy = inputs[3];
  if (!is_here(x) || !cuda::is_16_bits(x) || !x.is_contiguous() || x.dim() < 2) return {};
  if (!copy.defined() || copy.scalar_type() != x.scalar_type() || weight.scalar_type() != at::kFloat) return {};
  return [in_out](const Tensors& t) {
    const at::Tensor rows = t[0].view({-1, t[0].size(-1)});
    const at::Tensor y = cuda::LinearFunction::apply(rows, t[1], given(t[2]), t[3], given(t[4]), in_out);
    std::vector<int64_t> sizes = t[0].sizes().vec();
    sizes.back() = y.size(1);
    return Tensors{y.view(sizes)};
  };
}

}  // namespace gpu
}  // namespace gputrain::ops
