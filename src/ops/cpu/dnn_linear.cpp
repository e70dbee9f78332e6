#include "dnn_linear.hpp"

#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../dispatch/kernel_autotuner.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/ops/recorded.hpp"

namespace gputrain::ops::cpu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kLeastWork = 1 << 20;  // multiplications

/// Computes a [m, k] times the transpose of b [n, k], plus bias [n] -> [m, n]; any strides.
at::Tensor times_transposed(const at::Tensor& a, const at::Tensor& b,
                            const std::optional<at::Tensor>& bias = std::nullopt) {
  using Scalars = c10::List<std::optional<at::Scalar>>;
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, std::string_view,
                               Scalars, std::optional<std::string_view>);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Signature>();
  return op.call(a, b, bias, "none", Scalars(), std::nullopt);
}

/// Returns x as a dense matrix [rows, columns]: oneDNN does not accept repeated or interleaved rows.
at::Tensor as_rows(const at::Tensor& x) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  return rows.is_non_overlapping_and_dense() ? rows : rows.contiguous();
}

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& matrix,
                            const std::optional<at::Tensor>& bias, bool in_out) {
    // A frozen matrix has no gradient, so that x need not live until then.
    const bool is_trained = matrix.requires_grad();
    context->save_for_backward({is_trained ? x : at::Tensor(), matrix});
    context->saved_data["sizes"] = x.sizes().vec();
    context->saved_data["in_out"] = in_out;
    context->saved_data["has_bias"] = bias.has_value();
    const at::Tensor out_in = in_out ? matrix.t() : matrix;
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = out_in.size(0);
    return at::_unsafe_view(times_transposed(as_rows(x), out_in, bias), sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "a dense layer by oneDNN has no second derivative");
    const auto saved = context->get_saved_variables();
    const bool in_out = context->saved_data["in_out"].toBool();
    const at::Tensor &x = saved[0], &matrix = saved[1];
    const at::Tensor dy = as_rows(gradients[0]);
    variable_list found(4);
    if (context->needs_input_grad(0))
      found[0] = at::_unsafe_view(times_transposed(dy, in_out ? matrix : matrix.t()),
                                  context->saved_data["sizes"].toIntVector());
    if (context->needs_input_grad(1)) {
      // oneDNN copies the left operand to transpose it: make it the smaller one.
      const at::Tensor x_t = as_rows(x).t(), dy_t = dy.t();
      const bool is_x_left = x_t.size(0) < dy_t.size(0);
      const at::Tensor product = is_x_left ? times_transposed(x_t, dy_t) : times_transposed(dy_t, x_t);
      found[1] = is_x_left == in_out ? product : product.t();
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) found[2] = dy.sum(0);
    return found;
  }
};

}  // namespace

bool dnn_is_faster_here() {
  static const bool is =
      device::is_amd() && device::vector_units() == device::VectorUnits::avx512 && !takes_aten_only();
  return is;
}

bool dnn_takes(const at::Tensor& x, const at::Tensor& matrix) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && matrix.scalar_type() == at::kFloat && x.size(-1) > 0 &&
         x.numel() / x.size(-1) * matrix.numel() >= kLeastWork && !is_recorded();
}

at::Tensor dnn_linear(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& bias, bool in_out) {
  return Linear::apply(x, matrix, bias.defined() ? std::optional(bias) : std::nullopt, in_out);
}

}  // namespace gputrain::ops::cpu
