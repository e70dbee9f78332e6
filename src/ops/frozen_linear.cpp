#include "gputrain/ops/frozen_linear.hpp"

#include <utility>

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

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
    return linear(by.policy, x, by.matrix.in(by.policy.compute), by.bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    FrozenMatrix kept = c10::static_intrusive_pointer_cast<KeptMatrix>(context->saved_data["kept"].toCapsule())->matrix;
    kept.parts = context->get_saved_variables();
    const at::Tensor dy = gradients[0].reshape({-1, gradients[0].size(-1)});
    const at::Tensor matrix = kept.in(dy.scalar_type());
    std::vector<int64_t> sizes = gradients[0].sizes().vec();
    sizes.back() = matrix.size(1);
    return {at::mm(dy, matrix).view(sizes), {}};
  }
};

}  // namespace

at::Tensor FrozenMatrix::in(at::ScalarType type) const {
  if (!read) return cast(parts[0], type);
  const at::Tensor matrix = at::empty(sizes, parts[0].options().dtype(type));
  read(parts, matrix);
  return matrix;
}

at::Tensor frozen_linear(const Policy& policy, const at::Tensor& x, const FrozenMatrix& matrix,
                         const at::Tensor& bias) {
  const bool trains_bias = bias.defined() && bias.requires_grad();
  const Constants constants{policy, matrix, trains_bias ? at::Tensor() : bias};
  const at::Tensor y = FrozenLinear::apply(cast(x, policy.compute), constants);
  return trains_bias ? at::add(y, cast(bias, y.scalar_type())) : y;
}

}  // namespace gputrain::ops
