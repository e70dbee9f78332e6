#include "gputrain/ops/frozen_linear.hpp"

#include <utility>

#include <ATen/ops/add.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "gputrain/core/error.hpp"
#include "gputrain/ops/linear.hpp"

namespace gputrain::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Reader final : torch::CustomClassHolder {
  explicit Reader(FrozenMatrix::Read chosen) : read(std::move(chosen)) {}
  FrozenMatrix::Read read;
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
    context->saved_data["reader"] = c10::IValue::make_capsule(c10::make_intrusive<Reader>(by.matrix.read));
    return linear(by.policy, x, by.matrix.in(by.policy.compute), by.bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto reader = c10::static_intrusive_pointer_cast<Reader>(context->saved_data["reader"].toCapsule());
    const at::Tensor dy = gradients[0].reshape({-1, gradients[0].size(-1)});
    const at::Tensor matrix = FrozenMatrix::read_in(reader->read, context->get_saved_variables(), dy.scalar_type());
    std::vector<int64_t> sizes = gradients[0].sizes().vec();
    sizes.back() = matrix.size(1);
    return {at::mm(dy, matrix).view(sizes), {}};
  }
};

}  // namespace

at::Tensor FrozenMatrix::read_in(const Read& read, const std::vector<at::Tensor>& parts, at::ScalarType type) {
  return read ? read(parts, type) : cast(parts[0], type);
}

at::Tensor frozen_linear(const Policy& policy, const at::Tensor& x, const FrozenMatrix& matrix,
                         const at::Tensor& bias) {
  const bool trains_bias = bias.defined() && bias.requires_grad();
  const Constants constants{policy, matrix, trains_bias ? at::Tensor() : bias};
  const at::Tensor y = FrozenLinear::apply(cast(x, policy.compute), constants);
  return trains_bias ? at::add(y, cast(bias, y.scalar_type())) : y;
}

}  // namespace gputrain::ops
