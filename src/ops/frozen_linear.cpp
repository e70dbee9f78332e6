#include "gputrain/ops/frozen_linear.hpp"

#include <utility>

#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "cpu/wide_products.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/ops/linear.hpp"

namespace gputrain::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A matrix without its parts, which autograd keeps.
struct KeptMatrix final : torch::CustomClassHolder {
  explicit KeptMatrix(FrozenMatrix without_parts) : matrix(std::move(without_parts)) {}
  FrozenMatrix matrix;
};

/// Arguments that autograd does not follow.
struct Constants {
  Policy policy;
  const FrozenMatrix& matrix;
  at::Tensor bias;
};

struct FrozenLinear : torch::autograd::Function<FrozenLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Constants& by) {
    // The parts, because ranks may share them out: what is saved is gathered again.
    context->save_for_backward(by.matrix.parts);
    context->saved_data["kept"] = c10::IValue::make_capsule(
        c10::make_intrusive<KeptMatrix>(FrozenMatrix{.parts = {}, .read = by.matrix.read, .sizes = by.matrix.sizes}));
    const at::Tensor rows = x.reshape({-1, x.size(-1)});
    if (cpu::product_type(rows) == x.scalar_type())
      return linear(by.policy, x, by.matrix.in(by.policy.compute), by.bias);
    const at::Tensor y = by.matrix.times_rows(rows, cast(by.bias, x.scalar_type()));
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = y.size(1);
    return at::_unsafe_view(y, sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    FrozenMatrix kept = c10::static_intrusive_pointer_cast<KeptMatrix>(context->saved_data["kept"].toCapsule())->matrix;
    kept.parts = context->get_saved_variables();
    const at::Tensor dy = gradients[0].reshape({-1, gradients[0].size(-1)});
    const at::Tensor dx = kept.times_gradient(dy);
    std::vector<int64_t> sizes = gradients[0].sizes().vec();
    sizes.back() = dx.size(1);
    return {dx.view(sizes), {}};
  }
};

}  // namespace

at::Tensor FrozenMatrix::in(at::ScalarType type) const {
  if (!read) return cast(parts[0], type);
  const at::Tensor matrix = at::empty(sizes, parts[0].options().dtype(type));
  read(parts, matrix);
  return matrix;
}

at::Tensor FrozenMatrix::times_rows(const at::Tensor& rows, const at::Tensor& bias) const {
  const at::ScalarType type = cpu::product_type(rows);
  return cast(at::linear(cast(rows, type), in(type), cast(bias, type)), rows.scalar_type());
}

at::Tensor FrozenMatrix::times_gradient(const at::Tensor& dy) const {
  const at::ScalarType type = cpu::product_type(dy);
  return cast(at::mm(cast(dy, type), in(type)), dy.scalar_type());
}

at::Tensor frozen_linear(const Policy& policy, const at::Tensor& x, const FrozenMatrix& matrix,
                         const at::Tensor& bias) {
  const bool trains_bias = bias.defined() && bias.requires_grad();
  const Constants constants{policy, matrix, trains_bias ? at::Tensor() : bias};
  const at::Tensor y = FrozenLinear::apply(cast(x, policy.compute), constants);
  return trains_bias ? at::add(y, cast(bias, y.scalar_type())) : y;
}

}  // namespace gputrain::ops
