#include "gputrain/core/numbers.hpp"

namespace gputrain {

std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t end = digits.size(); end > first + 3;) digits.insert(end -= 3, 1, ',');
  return digits;
}

std::string counted(int64_t count, std::string_view noun) {
  const bool hisses = noun.ends_with('s') || noun.ends_with("ch");
  return grouped(count) + " " + std::string(noun) + (count == 1 ? "" : hisses ? "es" : "s");
}

}  // namespace gputrain
