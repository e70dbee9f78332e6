#pragma once

#include <cstdint>
#include <vector>

namespace gputrain::testing_support {

/// The rows of each product's result since this was emptied.
extern std::vector<int64_t> rows_of_products;

}  // namespace gputrain::testing_support
