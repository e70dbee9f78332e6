// Base64: bytes in the texts of files and pages.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gputrain {

inline constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes with the padding that browsers expect.
inline std::string to_base64(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const auto byte = [&](size_t i) {
      return at + i < bytes.size() ? static_cast<unsigned>(static_cast<unsigned char>(bytes[at + i])) : 0U;
    };
    const unsigned three = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (size_t digit = 0; digit < 4; ++digit)
      text += at + digit <= bytes.size() ? kBase64Digits[three >> (18 - 6 * digit) & 63] : '=';
  }
  return text;
}

/// Decodes Base64; nothing for any other text.
inline std::optional<std::string> from_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  unsigned waiting = 0, bits = 0;
  for (const char digit : text) {
    const size_t value = kBase64Digits.find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    waiting = (waiting << 6 | static_cast<unsigned>(value)) & 0xFFF;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(waiting >> bits & 0xFF);
  }
  return bytes;
}

}  // namespace gputrain
