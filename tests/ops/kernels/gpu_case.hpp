// Shared by the tests of operators made of kernels; they run on a CPU, and on a GPU if there is one.
#pragma once

#include <gtest/gtest.h>

#include "../../../src/ops/dispatch/gpu.hpp"
#include "ops/kernels/kernel_case.hpp"

namespace gputrain::testing_support {

class GpuOperators : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_kernel_device()) GTEST_SKIP() << "no GPU here";
  }
};

at::TensorOptions on_device(at::ScalarType type = at::kFloat);

/// Leaves; the first `differentiable` ones require a gradient.
ops::Tensors leaves_of(const ops::Tensors& inputs, size_t differentiable, bool in_double);

/// Checks that `custom` gives the same results, gradients and changes of its other inputs as `reference` in fp64.
/// `slack` multiplies the error that rounding allows for one operator.
void compare(const ops::Tensors& inputs, size_t differentiable, const ops::OpImpl& custom, const ops::OpImpl& reference,
             double slack = 1);

}  // namespace gputrain::testing_support
