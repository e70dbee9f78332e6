// Text as numbers without a tokenizer: one token per byte, or one per character (code point).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gputrain::datasets {

/// One code point of well-formed UTF-8 at `text[at]`, moving `at` past it; -1 when it is not well-formed (overlong,
/// surrogate, beyond U+10FFFF, cut off).
int64_t next_code_point(std::string_view text, size_t& at) noexcept;

/// Throws Error(data) naming `name`, line and column when `text` is not UTF-8.
void check_utf8(std::string_view text, const std::string& name);

/// Characters in order of their code points; token i is the i-th.
class Vocabulary {
 public:
  static Vocabulary of_bytes();
  static Vocabulary of_characters(std::span<const std::string> texts);  // each well-formed UTF-8

  int64_t size() const noexcept { return bytes_ ? 256 : std::ssize(characters_); }

  /// Appends the tokens of `text`; Token may be uint8_t, uint16_t, int32_t or int64_t, wide enough for size().
  /// Throws Error(data), naming `name`, for a character that is not in the vocabulary.
  template <class Token>
  void encode(std::string_view text, const std::string& name, std::vector<Token>& tokens) const;

  /// Tokens outside the vocabulary become U+FFFD.
  std::string decode(std::span<const int64_t> tokens) const;

 private:
  bool bytes_ = false;
  std::vector<int64_t> characters_;  // code points, ascending
  std::vector<int32_t> token_of_;    // by code point, up to the highest; -1: none
};

}  // namespace gputrain::datasets
