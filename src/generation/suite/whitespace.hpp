// White space as Python's str.rstrip() and \s of its regular expressions know it.
#pragma once

#include <cstdint>
#include <string_view>

namespace gputrain::generation {

/// Returns the bytes of the white-space character of UTF-8 at `at`; 0: there is another character.
inline size_t space_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t offset) {
    return at + offset < text.size() ? static_cast<unsigned char>(text[at + offset]) : 0U;
  };
  const unsigned first = byte(0), second = byte(1), third = byte(2);
  if ((first >= 0x09 && first <= 0x0D) || (first >= 0x1C && first <= 0x20)) return 1;
  if (first == 0xC2) return second == 0x85 || second == 0xA0 ? 2 : 0;
  const bool is_spacing = third <= 0x8A || third == 0xA8 || third == 0xA9 || third == 0xAF;  // U+2000, ...
  const bool is_space = (first == 0xE1 && second == 0x9A && third == 0x80) ||
                        (first == 0xE2 && second == 0x80 && third >= 0x80 && is_spacing) ||
                        (first == 0xE2 && second == 0x81 && third == 0x9F) ||
                        (first == 0xE3 && second == 0x80 && third == 0x80);
  return is_space ? 3 : 0;
}

inline std::string_view without_trailing_space(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t space = space_at(text, at);
    at += space > 0 ? space : 1;
    if (space == 0) end = at;
  }
  return text.substr(0, end);
}

/// Returns the number of parts that white space splits the text into, those that are empty included.
inline int64_t parts_between_spaces(std::string_view text) {
  int64_t parts = 1;
  bool was_space = false;
  for (size_t at = 0; at < text.size();) {
    const size_t space = space_at(text, at);
    if (space > 0 && !was_space) ++parts;
    was_space = space > 0;
    at += space > 0 ? space : 1;
  }
  return parts;
}

}  // namespace gputrain::generation
