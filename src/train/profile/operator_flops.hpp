// Floating-point operations of operators, from the sizes of their inputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gputrain::train {

using Shapes = std::vector<std::vector<int64_t>>;  // sizes of the inputs; empty: not a tensor

/// Returns the operations of matrix products, convolutions and attention: two per multiplication and addition.
/// Attention counts as if it had no mask, and its backward pass as twice the forward one, without recomputation. 0 for
/// any other operator, and for kernels of ours that no operator of ATen calls. `lists`: inputs that are lists of
/// numbers, such as strides.
double flops_of(const std::string& op, const Shapes& shapes, const Shapes& lists);

}  // namespace gputrain::train
