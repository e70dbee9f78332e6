#include "gputrain/core/printable.hpp"

#include <algorithm>

namespace gputrain {

size_t character_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return continues(1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const bool overlong = lead == 0xe0 && byte(1) < 0xa0;
    const bool surrogate = lead == 0xed && byte(1) > 0x9f;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const bool overlong = lead == 0xf0 && byte(1) < 0x90;
    const bool beyond = lead == 0xf4 && byte(1) > 0x8f;
    return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

std::string printable(std::string_view text, std::string_view kept) {
  std::string safe;
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_length(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    // C0 controls and DEL; C1 controls, which are C2 80 to C2 9F in UTF-8.
    const bool is_c1 = length == 2 && byte == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0;
    const bool is_control = (byte < 0x20 && kept.find(text[at]) == std::string_view::npos) || byte == 0x7f || is_c1;
    if (length == 0 || is_control) {
      safe += '?';
    } else {
      safe += text.substr(at, length);
    }
    at += std::max<size_t>(length, 1);
  }
  return safe;
}

std::string html_text(std::string_view text) {
  std::string safe;
  for (const char c : printable(text)) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '"')
      safe += "&quot;";
    else
      safe += c;
  }
  return safe;
}

}  // namespace gputrain
