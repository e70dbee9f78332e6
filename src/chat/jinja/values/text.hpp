// Strings as Python has them: sequences of code points, held as UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gputrain::chat {

bool is_utf8(std::string_view text) noexcept;
bool is_ascii(std::string_view text) noexcept;

/// Returns the code point at `at` of well-formed UTF-8; moves `at` past it.
int32_t next_point(std::string_view text, size_t& at) noexcept;
void append_point(std::string& text, int32_t point);
size_t count_points(std::string_view text) noexcept;
/// Returns the begin of the code point with this index; the size of the text if it has fewer.
size_t byte_of_point(std::string_view text, size_t index) noexcept;

bool is_space(int32_t point) noexcept;
bool is_letter(int32_t point) noexcept;
bool is_digit(int32_t point) noexcept;  // like str.isdigit(), but without superscripts and the like
bool is_letter_or_digit(int32_t point) noexcept;

enum class Side { left, right, both };
/// Strips white space, or any of `points`, from the ends.
std::string_view stripped(std::string_view text, Side side, std::optional<std::string_view> points = {});

std::string upper_cased(std::string_view text);
std::string lower_cased(std::string_view text);
/// Writes the first character in title case, the others in lower case.
std::string capitalized(std::string_view text);
/// Converts as str.title(): capitals after everything that has no case.
std::string title_cased(std::string_view text);

/// Quotes a text as repr() does.
std::string repr_of(std::string_view text);
/// Returns the shortest digits that read back as the same number, written as repr() does.
std::string number_text(double number);

/// Quotes a text for JSON. `ascii_only` escapes all else.
std::string json_quoted(std::string_view text, bool ascii_only);

}  // namespace gputrain::chat
