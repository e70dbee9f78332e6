// Conversion between code points and UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gputrain::tokenizers {

inline constexpr int64_t kReplacement = 0xFFFD;

void append_utf8(int64_t point, std::string& text);

/// Decodes the code point at `text[at]` and moves `at` past it. Returns -1 and keeps `at` if it is not well-formed
/// UTF-8 (overlong, surrogate, beyond U+10FFFF, cut off).
int64_t next_code_point(std::string_view text, size_t& at) noexcept;

bool is_utf8(std::string_view text) noexcept;

/// Throws Error(data), which names `name`, line and column, if `text` is not UTF-8.
void check_utf8(std::string_view text, const std::string& name);

/// Returns "name:line:column" of position `at` in a text; columns count bytes.
std::string place(const std::string& name, std::string_view text, size_t at);

/// Returns "'b' (U+0062)"; only the code if the character is not visible.
std::string name_of(int64_t point);

}  // namespace gputrain::tokenizers
