// Letters for text in pictures.
#pragma once

#include <cstdint>

namespace gputrain::data {

inline constexpr int64_t kLetterWidth = 6, kLetterHeight = 10;

/// Returns the pixels of an ASCII character, row by row from the top, the first one in bit 59; '?' for any other byte.
uint64_t letter(char character) noexcept;

}  // namespace gputrain::data
