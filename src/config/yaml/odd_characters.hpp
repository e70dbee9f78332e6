// Characters that look right on the screen and are not: invisible ones, curly quotes, full-width forms.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace gputrain::config {

struct OddCharacter {
  size_t offset = 0;      // in bytes
  std::string text = {};  // the character
  std::string name = {};  // "U+00A0 (a no-break space)"
  bool is_invisible = false, is_quote = false, is_full_width = false;

  bool is_look_alike() const noexcept { return is_invisible || is_quote || is_full_width; }
  std::string what() const;
  std::string hint() const;
};

/// Returns the first invisible character: no ASCII space, or without any width.
std::optional<OddCharacter> find_invisible(std::string_view text);

/// Returns the first character that is invisible or looks like one that YAML gives a meaning: a quote, ':', ',', '{'.
std::optional<OddCharacter> find_look_alike(std::string_view text);

/// Does the same outside of comments and straight quotes, line by line.
std::optional<OddCharacter> find_bare_look_alike(std::string_view yaml);

/// Describes the first character beyond ASCII: "'\u0435' is U+0435, no ASCII character"; empty if there is none.
std::string beyond_ascii(std::string_view text);

}  // namespace gputrain::config
