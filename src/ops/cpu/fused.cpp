#include "fused.hpp"

#include <optional>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "float_kernels.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/ops/recorded.hpp"

namespace gputrain::ops::cpu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const float* read(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr; }
float* write(const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr; }

struct GeluTanh : torch::autograd::Function<GeluTanh> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    at::Tensor y = at::empty_like(x);
    float_kernels().gelu_tanh(at::get_num_threads(), x.numel(), read(x), write(y));
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused GELU has no second derivative");
    const at::Tensor x = context->get_saved_variables()[0], dy = gradients[0].contiguous();
    at::Tensor dx = at::empty_like(x);
    float_kernels().gelu_tanh_backward(at::get_num_threads(), x.numel(), read(x), read(dy), write(dx));
    return {dx};
  }
};

NormRows rows_of(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& mean,
                 const at::Tensor& rstd, double eps) {
  const int64_t channels = weight.size(0);
  return {.rows = x.numel() / channels,
          .channels = channels,
          .centred = mean.defined(),
          .eps = static_cast<float>(eps),
          .x = read(x),
          .weight = read(weight),
          .bias = read(bias),
          .mean = write(mean),
          .rstd = write(rstd)};
}

struct RowNorm : torch::autograd::Function<RowNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, double eps, bool centred) {
    const int64_t rows = x.numel() / weight.size(0);
    const at::Tensor rstd = at::empty({rows}, x.options());
    const at::Tensor mean = centred ? at::empty({rows}, x.options()) : at::Tensor();
    at::Tensor y = at::empty_like(x);
    float_kernels().norm(at::get_num_threads(), rows_of(x, weight, bias.value_or(at::Tensor()), mean, rstd, eps),
                         write(y));
    context->save_for_backward({x, weight, mean, rstd});
    context->saved_data["has_bias"] = bias.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused norm has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor dy = gradients[0].contiguous();
    const NormRows rows = rows_of(x, weight, {}, saved[2], saved[3], 0);
    const int64_t partials = partials_of(rows.rows);
    const at::Tensor dx = at::empty_like(x), dweight = at::empty({partials, rows.channels}, x.options());
    const bool has_bias = context->saved_data["has_bias"].toBool();
    const at::Tensor dbias = has_bias ? at::empty_like(dweight) : at::Tensor();
    float_kernels().norm_backward(at::get_num_threads(), rows, read(dy), write(dx), write(dweight), write(dbias));
    return {dx, dweight.sum(0), has_bias ? dbias.sum(0) : at::Tensor(), {}, {}};
  }
};

}  // namespace

bool is_fusible(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && x.is_contiguous() && x.numel() > 0 && !is_recorded();
}

at::Tensor gelu_tanh(const at::Tensor& x) { return GeluTanh::apply(x); }

at::Tensor norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps, bool centred) {
  return RowNorm::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, eps, centred);
}

}  // namespace gputrain::ops::cpu
