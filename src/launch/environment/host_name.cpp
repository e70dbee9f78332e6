#include "host_name.hpp"

#include <algorithm>

namespace gputrain::launch {

bool is_host_name(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-:%").find(c) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= kLongestHostName && text[0] != '-' && text[0] != '.' &&
         std::ranges::all_of(text, fits);
}

std::string without_brackets(const std::string& address) {
  const bool is_in_brackets =
      address.starts_with('[') && address.ends_with(']') && address.find(':') != std::string::npos;
  return is_in_brackets ? address.substr(1, address.size() - 2) : address;
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string safe(text.substr(0, kLongest));
  std::ranges::replace_if(
      safe, [](char c) { return c < ' ' || c > '~'; }, '?');
  return "'" + safe + (text.size() > kLongest ? "...'" : "'");
}

}  // namespace gputrain::launch
