// Code points and their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gputrain::tokenizers {

inline constexpr int64_t kReplacement = 0xFFFD;

void append_utf8(int64_t point, std::string& text);

/// One code point of well-formed UTF-8 at `text[at]`, moving `at` past it; -1 when it is not well-formed (overlong,
/// surrogate, beyond U+10FFFF, cut off).
int64_t next_code_point(std::string_view text, size_t& at) noexcept;

/// Throws Error(data) naming `name`, line and column when `text` is not UTF-8.
void check_utf8(std::string_view text, const std::string& name);

/// "name:line:column" of a place in a text, columns in bytes.
std::string place(const std::string& name, std::string_view text, size_t at);

/// "'b' (U+0062)", or the number alone of a character that cannot be seen.
std::string name_of(int64_t point);

}  // namespace gputrain::tokenizers
