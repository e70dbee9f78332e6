// Base64, as tiktoken's and tokenizer.json's files write bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gputrain::tokenizers {

/// Nothing if it is not Base64.
inline std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  unsigned waiting = 0, bits = 0;
  for (const char digit : text) {
    const size_t value = kDigits.find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    waiting = (waiting << 6 | static_cast<unsigned>(value)) & 0xFFF;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(waiting >> bits & 0xFF);
  }
  return bytes;
}

}  // namespace gputrain::tokenizers
