// Unicode's properties of characters, and its normal forms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "traced_text.hpp"

namespace gputrain::tokenizers {

bool is_white_space(int64_t point) noexcept;  // property White_Space
bool is_letter(int64_t point) noexcept;       // L
bool is_mark(int64_t point) noexcept;         // M
bool is_number(int64_t point) noexcept;       // N
bool is_punctuation(int64_t point) noexcept;  // P, and all of ASCII that is neither letter, digit nor space
bool is_other(int64_t point) noexcept;        // C, but for what is not assigned
bool is_nonspacing(int64_t point) noexcept;   // Mn
bool is_word(int64_t point) noexcept;         // \w of Unicode's regular expressions

/// Returns the code point at `at` of well-formed UTF-8; moves `at` past it. A cut-off character is its first byte.
int64_t code_point(std::string_view text, size_t& at) noexcept;
/// Returns the number of bytes of the code point that begins with this byte.
size_t code_point_bytes(char first) noexcept;
/// Returns the begin of the code point before `at`, which is not 0.
size_t code_point_before(std::string_view text, size_t at) noexcept;

/// Rewrites a text character by character: calls change(rewriter, point, begin, end) for each.
template <typename Change>
void rewrite_points(TracedText& text, Change change) {
  Rewriter result(text);
  for (size_t at = 0; at < text.text.size();) {
    const size_t begin = at;
    const int64_t point = code_point(text.text, at);
    change(result, point, begin, at);
  }
  text = result.finish();
}

/// Returns the end of the character, as a reader sees it, that begins at `at`.
size_t grapheme_end(std::string_view text, size_t at) noexcept;

enum class NormalForm { nfc, nfd, nfkc, nfkd };
void normalize(TracedText& text, NormalForm form);
/// Makes each character full lower case, by itself.
void lower_case(TracedText& text);

/// Returns a visible character for each byte: GPT-2's alphabet.
int64_t byte_character(unsigned char byte) noexcept;
/// Returns the byte of a character of this alphabet, or -1.
int character_byte(int64_t point) noexcept;

}  // namespace gputrain::tokenizers
