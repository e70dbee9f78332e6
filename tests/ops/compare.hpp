// Comparisons for the tests of operators and models.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gputrain::testing_support {

/// ||a - b|| / ||b|| in double; 0 if both are 0.
double relative_error(const at::Tensor& a, const at::Tensor& b);

/// Reproducible normal values with requires_grad.
at::Tensor random_leaf(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type = at::kDouble);

/// The largest difference between autograd's gradients of a scalar function of fp64 leaves and central differences,
/// relative to the largest gradient.
double gradient_error(const std::function<at::Tensor()>& function, const std::vector<at::Tensor>& leaves);

}  // namespace gputrain::testing_support
