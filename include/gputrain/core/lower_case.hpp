// Converts ASCII letters to lower case, in any locale.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace gputrain {

constexpr char lower_case(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return lower_case(c); });
  return lower;
}

}  // namespace gputrain
