#include "gputrain/core/numbers.hpp"

namespace gputrain {

std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t end = digits.size(); end > first + 3;) digits.insert(end -= 3, 1, ',');
  return digits;
}

}  // namespace gputrain
