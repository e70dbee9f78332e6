// Dense layers by oneDNN against fp64, on any CPU, whether or not they would be selected there.
#include "../../src/ops/cpu/dnn_linear.hpp"

#include <array>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>

#include "ops/compare.hpp"

namespace gputrain::ops {
namespace {

using testing_support::random_leaf;
using testing_support::relative_error;

TEST(DnnLinear, MatchesProductPlusBiasInEitherLayout) {
  for (const auto& [rows, in, out] : {std::array<int64_t, 3>{70, 128, 65}, {1, 128, 96}, {197, 33, 7}, {64, 1, 50}}) {
    const auto single = [](const at::Tensor& exact) { return exact.detach().to(at::kFloat).set_requires_grad(true); };
    const at::Tensor x = random_leaf({rows, in}, 1), weight = random_leaf({out, in}, 2), bias = random_leaf({out}, 3);
    for (const bool in_out : {false, true}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(in) + " in, " + std::to_string(out) + " out" +
                   (in_out ? ", in x out" : ""));
      const at::Tensor matrix = in_out ? weight.detach().t().contiguous().set_requires_grad(true) : weight;
      std::vector<at::Tensor> exact{x, matrix, bias}, found{single(x), single(matrix), single(bias)};
      const at::Tensor y = cpu::dnn_linear(found[0].view({rows, 1, in}), found[1], found[2], in_out);
      const at::Tensor weights = random_leaf({rows, out}, 99).detach();  // a different weight per element
      const at::Tensor expected = at::matmul(x, weight.t()) + bias;
      EXPECT_EQ(y.sizes(), (at::IntArrayRef{rows, 1, out}));
      EXPECT_LT(relative_error(y.view({rows, out}), expected), 1e-6);
      EXPECT_LT(relative_error(cpu::dnn_linear(found[0], found[1], {}, in_out), expected - bias), 1e-6);
      EXPECT_FALSE(y.is_view());
      for (const at::Tensor& leaf : exact) leaf.mutable_grad().reset();
      (((in_out ? at::matmul(x, matrix) : at::matmul(x, matrix.t())) + bias) * weights).sum().backward();
      (y.view({rows, out}) * weights.to(at::kFloat)).sum().backward();
      for (size_t i = 0; i < exact.size(); ++i)
        EXPECT_LT(relative_error(found[i].grad(), exact[i].grad()), 1e-6) << "input " << i;
    }
  }
}

TEST(DnnLinear, AcceptsRepeatedAndStridedRows) {
  const at::Tensor x = random_leaf({40, 3, 64}, 1, at::kFloat), weight = random_leaf({48, 64}, 2, at::kFloat);
  const auto gradients = [&](const auto& layer) {
    for (const at::Tensor& leaf : {x, weight}) leaf.mutable_grad().reset();
    layer(x.select(1, 1), weight).sum().backward();  // a broadcast gradient: all elements share one value
    return std::vector<at::Tensor>{x.grad().clone(), weight.grad().clone()};
  };
  const auto found = gradients([](const auto& in, const auto& by) { return cpu::dnn_linear(in, by, {}, false); });
  const auto expected = gradients([](const auto& in, const auto& by) { return at::matmul(in, by.t()); });
  for (size_t i = 0; i < 2; ++i) EXPECT_LT(relative_error(found[i], expected[i]), 1e-6);
}

}  // namespace
}  // namespace gputrain::ops
