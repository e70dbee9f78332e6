#include <algorithm>
#include <array>
#include <cstdio>

#include "scalar.hpp"

namespace gputrain::config {
namespace {

constexpr size_t kShownBytes = 60;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// True for text that every YAML reader, of version 1.1 too, takes for text.
bool is_safely_bare(std::string_view text) {
  if (text.ends_with(' ')) return false;
  if (text.empty() || !(is_letter(text[0]) || text[0] == '/' || text[0] == '_')) return false;
  const auto harmless = [](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || std::string_view("_-./+% ").find(c) != std::string_view::npos;
  };
  if (!std::all_of(text.begin(), text.end(), harmless)) return false;
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  constexpr std::array<std::string_view, 9> kWords{"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
  return std::find(kWords.begin(), kWords.end(), lower) == kWords.end();
}

}  // namespace

std::string double_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\x%02x", static_cast<unsigned>(c));
      quoted += escape.data();
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string scalar_text(std::string_view text) {
  return is_safely_bare(text) ? std::string(text) : double_quoted(text);
}

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

std::string printable(std::string_view text) {
  std::string safe;
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_length(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    // C0 and DEL, and the C1 controls, which in UTF-8 are C2 80 to C2 9F.
    const bool is_c1 = length == 2 && byte == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0;
    const bool is_control = byte < 0x20 || byte == 0x7f || is_c1;
    if (length == 0 || is_control) {
      safe += '?';
    } else {
      safe += text.substr(at, length);
    }
    at += std::max<size_t>(length, 1);
  }
  return safe;
}

std::string shown(std::string_view text) {
  size_t length = std::min(text.size(), kShownBytes);
  if (length < text.size()) {
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0u) == 0x80u) --length;
  }
  return "'" + printable(text.substr(0, length)) + (length < text.size() ? "...'" : "'");
}

std::string either(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace gputrain::config
