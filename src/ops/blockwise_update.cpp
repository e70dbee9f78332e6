#include "gputrain/ops/blockwise_update.hpp"

#include <algorithm>
#include <cmath>

namespace gputrain::ops {

std::vector<double> dynamic_tree(bool is_signed) {
  std::vector<double> values{0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    const int count = 1 << (decade + (is_signed ? 0 : 1));
    for (int i = 0; i < count; ++i) {
      const double value = (0.1 + 0.9 * (i + 0.5) / count) * std::pow(10.0, decade - 6);
      values.push_back(value);
      if (is_signed) values.push_back(-value);
    }
  }
  std::ranges::sort(values);
  return values;
}

}  // namespace gputrain::ops
