#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gputrain::ops {
class KernelAutotuner;
}

namespace gputrain::testing_support {

/// The number of rows of each product's result, since the last clear.
extern std::vector<int64_t> rows_of_products;
/// For each product with GELU or its gradient in one kernel, which GELU, as ATen names it.
extern std::vector<std::string> gelu_products;
/// Simulates that cuDNN has no plan for them.
extern bool gelu_products_are_refused;
/// Chooses instead of the one that takes every correct kernel; null: no other.
extern ops::KernelAutotuner* other_autotuner;

}  // namespace gputrain::testing_support
