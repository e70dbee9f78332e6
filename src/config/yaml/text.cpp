#include <algorithm>
#include <array>
#include <cstdio>

#include "gputrain/core/lower_case.hpp"
#include "scalar.hpp"

namespace gputrain::config {
namespace {

constexpr size_t kShownBytes = 60;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Returns whether every YAML reader, including version 1.1, takes the unquoted text as text.
bool is_safely_bare(std::string_view text) {
  if (text.ends_with(' ')) return false;
  if (text.empty() || !(is_letter(text[0]) || text[0] == '/' || text[0] == '_')) return false;
  const auto harmless = [](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || std::string_view("_-./+% ").find(c) != std::string_view::npos;
  };
  if (!std::all_of(text.begin(), text.end(), harmless)) return false;
  constexpr std::array<std::string_view, 9> kWords{"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
  return std::find(kWords.begin(), kWords.end(), lower_case(text)) == kWords.end();
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
