#include <algorithm>
#include <bit>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../../dispatch/gpu.hpp"
#include "../kernels/norm.hpp"
#include "gputrain/core/error.hpp"
#include "gradient_place.hpp"
#include "launching.hpp"

namespace gputrain::ops {
namespace cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor floats(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options().dtype(at::kFloat));
}

std::vector<int64_t> listed(const Dropout& d) {
  return {static_cast<int64_t>(d.threshold), std::bit_cast<int64_t>(d.seed), std::bit_cast<int64_t>(d.offset),
          reinterpret_cast<int64_t>(d.seed_pointer), reinterpret_cast<int64_t>(d.offset_pointer)};
}

Dropout dropout_of(const std::vector<int64_t>& list) {
  return {.threshold = static_cast<unsigned>(list[0]),
          .seed = std::bit_cast<uint64_t>(list[1]),
          .offset = std::bit_cast<uint64_t>(list[2]),
          .seed_pointer = reinterpret_cast<const int64_t*>(list[3]),
          .offset_pointer = reinterpret_cast<const int64_t*>(list[4])};
}

/// The destination of a vector's gradient: `result` for the graph, undefined if it is added to the parameter's .grad.
struct VectorGradient {
  ColumnSums::Out out;
  at::Tensor result;

  explicit VectorGradient(const at::Tensor& parameter) {
    if (!parameter.defined()) return;
    const bool adds = has_place(parameter);
    if (!adds) result = floats(parameter.sizes(), parameter);
    out = {.values = write<float>(adds ? parameter.grad() : result), .adds = adds};
  }
};

/// {norm(z), z} with z = dropout(x) + residual, or {norm(x)} without a residual.
struct RowNorm : torch::autograd::Function<RowNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                               const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& residual,
                               double eps, bool centred, double dropped) {
    const int64_t width = weight.size(0), rows = x.numel() / width;
    const at::Tensor y = at::empty_like(x), z = residual ? at::empty_like(x) : at::Tensor();
    const at::Tensor rstd = floats({rows}, x), mean = centred ? floats({rows}, x) : at::Tensor();
    const Dropout dropout = drawn_dropout(dropped);
    norm_forward({.element = element_of(x),
                  .rows = rows,
                  .width = width,
                  .centred = centred,
                  .eps = static_cast<float>(eps),
                  .dropout = dropout,
                  .x = read(x),
                  .residual = residual ? read(*residual) : nullptr,
                  .scale = read<float>(weight),
                  .shift = bias ? read<float>(*bias) : nullptr,
                  .z = write(z),
                  .y = write(y),
                  .mean = write<float>(mean),
                  .rstd = write<float>(rstd)},
                 current_stream());
    check_launches();
    context->save_for_backward({residual ? z : x, weight, mean, rstd, bias.value_or(at::Tensor())});
    context->saved_data["dropout"] = listed(dropout);
    context->saved_data["has_residual"] = residual.has_value();
    context->set_materialize_grads(false);
    return residual ? variable_list{y, z} : variable_list{y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused norm has no second derivative");
    const bool has_residual = context->saved_data["has_residual"].toBool();
    at::Tensor passed = has_residual ? gradients[1] : at::Tensor();
    const Dropout dropout = dropout_of(context->saved_data["dropout"].toIntVector());
    if (!gradients[0].defined() && dropout.threshold == 0) return {passed, {}, {}, passed, {}, {}, {}};
    const auto saved = context->get_saved_variables();
    const at::Tensor &z = saved[0], &weight = saved[1], &mean = saved[2];
    const at::Tensor dy = gradients[0].defined() ? gradients[0].contiguous() : at::zeros_like(z),
                     dz = at::empty_like(z);
    const at::Tensor dx = dropout.threshold > 0 ? at::empty_like(z) : at::Tensor();
    if (passed.defined()) passed = passed.contiguous();
    const int64_t width = weight.size(0), rows = z.numel() / width;
    const auto parts = static_cast<int>(std::min<int64_t>(2 * multiprocessors(), rows));
    const at::Tensor partials = floats({parts, 2, width}, z);
    norm_backward({.element = element_of(z),
                   .rows = rows,
                   .width = width,
                   .centred = mean.defined(),
                   .dropout = dropout,
                   .dy = read(dy),
                   .passed = read(passed),
                   .z = read(z),
                   .scale = read<float>(weight),
                   .mean = read<float>(mean),
                   .rstd = read<float>(saved[3]),
                   .dz = write(dz),
                   .dx = write(dx),
                   .partials = write<float>(partials),
                   .parts = parts},
                  current_stream());
    const VectorGradient of_weight(weight), of_bias(saved[4]);
    column_sums(
        {.partials = read<float>(partials), .out = {of_weight.out, of_bias.out}, .parts = parts, .width = width},
        current_stream());
    check_launches();
    return {dx.defined() ? dx : dz, of_weight.result, of_bias.result, has_residual ? dz : at::Tensor(), {}, {}, {}};
  }
};

bool is_vector(const at::Tensor& tensor, int64_t width) {
  return !tensor.defined() || (tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && tensor.numel() == width);
}

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace
}  // namespace cuda

namespace gpu {

OpImpl norm(const Tensors& inputs, double eps, bool centred, double dropout) {
  const at::Tensor &x = inputs[0], &weight = inputs[1], &bias = inputs[2], &residual = inputs[3];
  const int64_t width = weight.numel();
  const bool takes = is_here(x) && x.is_contiguous() && x.numel() > 0 && x.size(-1) == width &&
                     cuda::takes_norm_width(width) && cuda::is_vector(weight, width) && cuda::is_vector(bias, width) &&
                     (!residual.defined() || (residual.is_contiguous() && residual.sizes() == x.sizes() &&
                                              residual.scalar_type() == x.scalar_type()));
  if (!takes) return {};
  return [=](const Tensors& t) {
    return cuda::RowNorm::apply(t[0], t[1], cuda::optional(t[2]), cuda::optional(t[3]), eps, centred, dropout);
  };
}

}  // namespace gpu
}  // namespace gputrain::ops
