// What the tests of operators that are made of kernels share: they run on a CPU, and on a GPU where there is one.
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

/// The first of these require a gradient.
ops::Tensors leaves_of(const ops::Tensors& inputs, size_t differentiable, bool in_double);

/// Results, gradients and what a way changed in its other inputs are those of the reference in fp64.
/// `slack` times as far as rounding takes one operator.
void compare(const ops::Tensors& inputs, size_t differentiable, const ops::Way& own, const ops::Way& reference,
             double slack = 1);

}  // namespace gputrain::testing_support
