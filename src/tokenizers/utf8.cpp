#include "utf8.hpp"

#include <algorithm>
#include <cstdio>

#include "gputrain/core/error.hpp"
#include "gputrain/core/file_kind.hpp"

namespace gputrain::tokenizers {

void append_utf8(int64_t point, std::string& text) {
  const auto put = [&text](int64_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6);
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

std::string place(const std::string& name, std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, at);
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return name + ":" + std::to_string(1 + std::count(before.begin(), before.end(), '\n')) + ":" +
         std::to_string(at - line_begin + 1);
}

std::string name_of(int64_t point) {
  char code[16];
  std::snprintf(code, sizeof(code), "U+%04X", static_cast<unsigned>(point));
  std::string text;
  append_utf8(point, text);
  const bool is_visible = point >= 0x20 && (point < 0x7F || point >= 0xA0);
  return is_visible ? "'" + text + "' (" + code + ")" : code;
}

int64_t next_code_point(std::string_view text, size_t& at) noexcept {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(at);
  if (first < 0x80) {
    ++at;
    return first;
  }
  const size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  if (first < 0xC2 || first > 0xF4) return -1;
  int64_t point = first & (0x3Fu >> more);
  for (size_t i = 1; i <= more; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return -1;
    point = point << 6 | (byte(at + i) & 0x3F);
  }
  constexpr int64_t kHighestCodePoint = 0x10FFFF;
  constexpr int64_t kFewest[] = {0, 0x80, 0x800, 0x10000};
  if (point < kFewest[more] || point > kHighestCodePoint || (point >= 0xD800 && point <= 0xDFFF)) return -1;
  at += more + 1;
  return point;
}

namespace {

/// Returns the place where the text stops being UTF-8; its size if it never does.
size_t valid_end(std::string_view text) noexcept {
  size_t at = 0;
  while (at < text.size() && next_code_point(text, at) >= 0) {
  }
  return at;
}

}  // namespace

bool is_utf8(std::string_view text) noexcept { return valid_end(text) == text.size(); }

void check_utf8(std::string_view text, const std::string& name) {
  if (const size_t at = valid_end(text); at < text.size()) {
    char byte[8];
    std::snprintf(byte, sizeof(byte), "0x%02X", static_cast<unsigned>(static_cast<unsigned char>(text[at])));
    const FileKind kind = file_kind(text);
    const std::string remedy = kind.remedy.empty() || kind.is_text() ? "convert it (iconv)" : std::string(kind.remedy);
    throw Error(ExitCode::data,
                {.what = "not UTF-8 text: invalid byte " + std::string(byte) + (kind.is_text() ? "" : kind.it_is()),
                 .where = place(name, text, at),
                 .hint = remedy + ", leave it out with `exclude`, or data.text.tokenizer: bytes"});
  }
}

}  // namespace gputrain::tokenizers
