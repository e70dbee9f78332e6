#include "ops/kernels/gpu_case.hpp"

#include <ATen/TensorOperators.h>

namespace gputrain::testing_support {

using ops::OpImpl;
using ops::Tensors;

at::TensorOptions on_device(at::ScalarType type) { return at::device(kernel_device()).dtype(type); }

Tensors leaves_of(const Tensors& inputs, size_t differentiable, bool in_double) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    const bool is_float = input.defined() && at::isFloatingType(input.scalar_type());
    at::Tensor leaf = !input.defined() ? at::Tensor() : is_float && in_double ? wide(input) : input.clone();
    if (leaves.size() < differentiable && leaf.defined()) leaf.set_requires_grad(true);
    leaves.push_back(leaf);
  }
  return leaves;
}

void compare(const Tensors& inputs, size_t differentiable, const OpImpl& custom, const OpImpl& reference,
             double slack) {
  ASSERT_TRUE(custom);
  const Tensors ours = leaves_of(inputs, differentiable, false), exact = leaves_of(inputs, differentiable, true);
  Tensors handed;
  for (const at::Tensor& leaf : ours)
    handed.push_back(leaf.defined() && leaf.requires_grad() ? leaf.view_as(leaf) : leaf);
  const Tensors results = custom(handed), expected = reference(exact);
  ASSERT_EQ(results.size(), expected.size());
  at::Tensor objective, exact_objective;
  for (size_t i = 0; i < results.size(); ++i) {
    const double bound = slack * (results[i].element_size() == 2 ? 3e-3 : 1e-5);
    expect_within(bound, results[i].detach(), expected[i], "result " + std::to_string(i));
    const at::Tensor weights = noise(expected[i].sizes(), 90 + i, results[i].scalar_type());
    const at::Tensor part = (results[i] * weights).sum(), exact_part = (expected[i] * wide(weights)).sum();
    objective = i == 0 ? part : objective + part;
    exact_objective = i == 0 ? exact_part : exact_objective + exact_part;
  }
  objective.backward();
  exact_objective.backward();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    const std::string place = "input " + std::to_string(i);
    // Gradients of fp32 weights include the rounding of 16-bit activations.
    if (i < differentiable)
      expect_within(slack * (inputs[0].element_size() == 2 ? 3e-3 : 1e-5), ours[i].grad(), exact[i].grad(), place);
    if (i < differentiable || !at::isFloatingType(inputs[i].scalar_type())) continue;
    const bool is_of_rounded = slack > 1 && inputs[0].element_size() == 2;  // updated from 16-bit results
    expect_within(is_of_rounded ? 1e-2 : slack * 1e-5, ours[i], exact[i], place);
  }
}

}  // namespace gputrain::testing_support
