#include "text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include <utf8proc.h>

namespace gputrain::chat {
namespace {

int32_t decoded(std::string_view text, size_t at, int32_t& point) noexcept {
  return static_cast<int32_t>(utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                               static_cast<utf8proc_ssize_t>(text.size() - at), &point));
}

bool is_cased(int32_t point) noexcept {
  const auto kind = utf8proc_category(point);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
}

bool is_printable(int32_t point) noexcept {
  const auto kind = utf8proc_category(point);
  return point == ' ' || (kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS);
}

struct LongerCase {
  int32_t point;
  std::string_view upper, title;
};
/// Characters with an upper case of several. Greek ones with iota below and Armenian ones stay as they are.
constexpr std::array<LongerCase, 10> kLongerCases = {{{0xDF, "SS", "Ss"},
                                                      {0x149, "\u02BCN", "\u02BCN"},
                                                      {0x1F0, "J\u030C", "J\u030C"},
                                                      {0xFB00, "FF", "Ff"},
                                                      {0xFB01, "FI", "Fi"},
                                                      {0xFB02, "FL", "Fl"},
                                                      {0xFB03, "FFI", "Ffi"},
                                                      {0xFB04, "FFL", "Ffl"},
                                                      {0xFB05, "ST", "St"},
                                                      {0xFB06, "ST", "St"}}};

void append_upper(std::string& result, int32_t point, bool is_title) {
  for (const LongerCase& longer : kLongerCases)
    if (longer.point == point) {
      result += is_title ? longer.title : longer.upper;
      return;
    }
  append_point(result, is_title ? utf8proc_totitle(point) : utf8proc_toupper(point));
}

/// Returns whether the sigma before `at` ends a word that has begun.
bool ends_word(std::string_view text, size_t at, bool follows_letter) {
  if (!follows_letter) return false;
  return at >= text.size() || !is_cased(next_point(text, at));
}

void append_lower(std::string& result, std::string_view text, size_t after, int32_t point, bool follows_letter) {
  if (point == 0x130) {
    result += "i\u0307";
  } else if (point == 0x3A3 && ends_word(text, after, follows_letter)) {
    result += "\u03C2";
  } else {
    append_point(result, utf8proc_tolower(point));
  }
}

void append_hex(std::string& result, const char* format, int32_t point) {
  char escape[16];
  std::snprintf(escape, sizeof(escape), format, static_cast<unsigned>(point));
  result += escape;
}

}  // namespace

bool is_utf8(std::string_view text) noexcept {
  for (size_t at = 0; at < text.size();) {
    int32_t point = 0;
    const int32_t bytes = decoded(text, at, point);
    if (bytes <= 0) return false;
    at += static_cast<size_t>(bytes);
  }
  return true;
}

bool is_ascii(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

int32_t next_point(std::string_view text, size_t& at) noexcept {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) {
    ++at;
    return first;
  }
  int32_t point = 0;
  at += static_cast<size_t>(std::max(1, decoded(text, at, point)));
  return point;
}

void append_point(std::string& text, int32_t point) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto count = utf8proc_encode_char(point, bytes.data());
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) text += static_cast<char>(bytes[i]);
}

size_t count_points(std::string_view text) noexcept {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

size_t byte_of_point(std::string_view text, size_t index) noexcept {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) next_point(text, at);
  return at;
}

bool is_space(int32_t point) noexcept {
  if (point < 0x80) return point == ' ' || (point >= 9 && point <= 13) || (point >= 0x1C && point <= 0x1F);
  return point == 0x85 || point == 0xA0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 ||
         point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
}

bool is_letter(int32_t point) noexcept {
  const auto kind = utf8proc_category(point);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(int32_t point) noexcept { return utf8proc_category(point) == UTF8PROC_CATEGORY_ND; }

bool is_letter_or_digit(int32_t point) noexcept {
  const auto kind = utf8proc_category(point);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NO;
}

std::string_view stripped(std::string_view text, Side side, std::optional<std::string_view> points) {
  const auto goes = [&](size_t begin, size_t end) {
    const std::string_view character = text.substr(begin, end - begin);
    if (points) return points->find(character) != std::string_view::npos;
    size_t at = begin;
    return is_space(next_point(text, at));
  };
  size_t begin = 0, end = text.size();
  while (side != Side::right && begin < end) {
    size_t next = begin;
    next_point(text, next);
    if (!goes(begin, next)) break;
    begin = next;
  }
  while (side != Side::left && end > begin) {
    size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!goes(last, end)) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

std::string upper_cased(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) append_upper(result, next_point(text, at), false);
  return result;
}

std::string lower_cased(std::string_view text) {
  std::string result;
  bool follows_letter = false;
  for (size_t at = 0; at < text.size();) {
    const int32_t point = next_point(text, at);
    append_lower(result, text, at, point, follows_letter);
    follows_letter = is_cased(point);
  }
  return result;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  std::string result;
  size_t at = 0;
  int32_t point = next_point(text, at);
  append_upper(result, point, true);
  while (at < text.size()) {
    const bool follows_letter = is_cased(point);
    point = next_point(text, at);
    append_lower(result, text, at, point, follows_letter);
  }
  return result;
}

std::string title_cased(std::string_view text) {
  std::string result;
  bool follows_letter = false;
  for (size_t at = 0; at < text.size();) {
    const int32_t point = next_point(text, at);
    if (follows_letter) {
      append_lower(result, text, at, point, true);
    } else {
      append_upper(result, point, true);
    }
    follows_letter = is_cased(point);
  }
  return result;
}

std::string repr_of(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, quote);
  for (size_t at = 0; at < text.size();) {
    const int32_t point = next_point(text, at);
    if (point == quote || point == '\\') {
      result += '\\';
      result += static_cast<char>(point);
    } else if (point == '\n' || point == '\r' || point == '\t') {
      result += point == '\n' ? "\\n" : point == '\r' ? "\\r" : "\\t";
    } else if (is_printable(point)) {
      append_point(result, point);
    } else {
      append_hex(result, point < 0x100 ? "\\x%02x" : point < 0x10000 ? "\\u%04x" : "\\U%08x", point);
    }
  }
  return result + quote;
}

std::string number_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  std::array<char, 64> digits;
  const auto scientific =
      std::to_chars(digits.data(), digits.data() + digits.size(), number, std::chars_format::scientific);
  std::string text(digits.data(), scientific.ptr);
  int exponent = 0;
  const size_t mark = text.find('e') + 1;
  std::from_chars(text.data() + mark + (text[mark] == '+'), text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = std::to_chars(digits.data(), digits.data() + digits.size(), number, std::chars_format::fixed);
  text.assign(digits.data(), fixed.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string json_quoted(std::string_view text, bool ascii_only) {
  constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
  std::string result = "\"";
  for (size_t at = 0; at < text.size();) {
    const int32_t point = next_point(text, at);
    const size_t known = point < 0x80 ? kEscaped.find(static_cast<char>(point)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      result += '\\';
      result += kLetters[known];
    } else if (point < 0x20 || (ascii_only && point > 0x7E && point < 0x10000)) {
      append_hex(result, "\\u%04x", point);
    } else if (ascii_only && point >= 0x10000) {
      append_hex(result, "\\u%04x", 0xD800 + ((point - 0x10000) >> 10));
      append_hex(result, "\\u%04x", 0xDC00 + ((point - 0x10000) & 0x3FF));
    } else {
      append_point(result, point);
    }
  }
  return result + '"';
}

}  // namespace gputrain::chat
