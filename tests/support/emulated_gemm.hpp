#pragma once

#include <cstdint>
#include <vector>

namespace gputrain::testing_support {

/// The number of rows of each product's result, since the last clear.
extern std::vector<int64_t> rows_of_products;

}  // namespace gputrain::testing_support
