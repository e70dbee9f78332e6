#include "unicode.hpp"

#include <array>
#include <cstdlib>
#include <memory>
#include <new>

#include <utf8proc.h>

#include "../../utf8.hpp"

namespace gputrain::tokenizers {
namespace {

utf8proc_category_t category(int64_t point) noexcept { return utf8proc_category(static_cast<utf8proc_int32_t>(point)); }

/// Returns whether a character neither changes nor combines with its neighbours, in every normal form, unless the next
/// character combines with it.
bool is_plain(int64_t point, NormalForm form) noexcept {
  if (point < 0x80) return true;
  if (point >= 0x4E00 && point <= 0x9FFF) return true;                                         // CJK
  return form == NormalForm::nfc && (point < 0x300 || (point >= 0x3000 && point <= 0x3002) ||  // Latin, 、。
                                     (point >= 0xFF01 && point <= 0xFF5E));                    // full width
}

std::string mapped(std::string_view text, utf8proc_option_t options) {
  utf8proc_uint8_t* bytes = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &bytes, options);
  if (size < 0) throw std::bad_alloc();  // the text is well-formed, so nothing else fails
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(bytes, std::free);
  return {reinterpret_cast<const char*>(bytes), static_cast<size_t>(size)};
}

/// Writes the normal form of bytes [begin, end). If no character, as a reader sees it, combines with a neighbour, the
/// form of each is traced to it; few combine, such as jamos that become one syllable.
void put_mapped(std::string_view text, size_t begin, size_t end, utf8proc_option_t options, Rewriter& result) {
  const std::string whole = mapped(text.substr(begin, end - begin), options);
  if (!result.is_traced()) return result.put(whole, begin, end);
  std::string joined;
  std::vector<std::pair<std::string, size_t>> parts;  // new bytes of each character, and its end
  for (size_t at = begin; at < end;) {
    const size_t next = std::min(grapheme_end(text, at), end);
    joined += parts.emplace_back(mapped(text.substr(at, next - at), options), next).first;
    at = next;
  }
  if (joined != whole) parts = {{whole, end}};
  for (size_t at = begin; const auto& [bytes, next] : parts) {
    result.put(bytes, at, next);
    at = next;
  }
}

utf8proc_option_t options_of(NormalForm form) {
  const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool is_compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (is_compatible ? UTF8PROC_COMPAT : 0));
}

struct Alphabet {
  std::array<int64_t, 256> characters;
  std::array<int, 512> bytes;

  Alphabet() {
    bytes.fill(-1);
    int64_t next = 256;
    for (int64_t byte = 0; byte < 256; ++byte) {
      const bool is_visible = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      const int64_t character = is_visible ? byte : next++;
      characters[static_cast<size_t>(byte)] = character;
      bytes[static_cast<size_t>(character)] = static_cast<int>(byte);
    }
  }
};
const Alphabet kAlphabet;

}  // namespace

bool is_white_space(int64_t point) noexcept {
  if (point < 0x1680) return (point >= 9 && point <= 13) || point == 0x20 || point == 0x85 || point == 0xA0;
  return point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

bool is_letter(int64_t point) noexcept {
  const auto kind = category(point);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_mark(int64_t point) noexcept {
  const auto kind = category(point);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool is_number(int64_t point) noexcept {
  const auto kind = category(point);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(int64_t point) noexcept {
  const auto kind = category(point);
  if (kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO) return true;
  return point > 0x20 && point < 0x7F && !is_letter(point) && !is_number(point);
}

bool is_other(int64_t point) noexcept {
  const auto kind = category(point);
  return kind >= UTF8PROC_CATEGORY_CC;
}

bool is_nonspacing(int64_t point) noexcept { return category(point) == UTF8PROC_CATEGORY_MN; }

bool is_word(int64_t point) noexcept {
  const auto kind = category(point);
  if (is_letter(point) || is_mark(point)) return true;
  if (kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_PC) return true;
  const bool is_circled = (point >= 0x24B6 && point <= 0x24E9) || (point >= 0x1F130 && point <= 0x1F149) ||
                          (point >= 0x1F150 && point <= 0x1F169) || (point >= 0x1F170 && point <= 0x1F189);
  return is_circled || point == 0x200C || point == 0x200D;
}

size_t code_point_bytes(char first) noexcept {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

int64_t code_point(std::string_view text, size_t& at) noexcept {
  const auto byte = [&](size_t i) { return static_cast<int64_t>(static_cast<unsigned char>(text[at + i])); };
  size_t bytes = code_point_bytes(text[at]);
  if (bytes > text.size() - at) bytes = 1;
  int64_t point = byte(0);
  if (bytes == 2) point = (point & 0x1F) << 6 | (byte(1) & 0x3F);
  if (bytes == 3) point = (point & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  if (bytes == 4) point = (point & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  at += bytes;
  return point;
}

size_t code_point_before(std::string_view text, size_t at) noexcept {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

size_t grapheme_end(std::string_view text, size_t at) noexcept {
  utf8proc_int32_t state = 0;
  for (auto last = static_cast<utf8proc_int32_t>(code_point(text, at)); at < text.size();) {
    size_t next = at;
    const auto point = static_cast<utf8proc_int32_t>(code_point(text, next));
    if (utf8proc_grapheme_break_stateful(last, point, &state)) break;
    last = point;
    at = next;
  }
  return at;
}

void normalize(TracedText& traced, NormalForm form) {
  const std::string_view text = traced.text;
  Rewriter result(traced);
  const utf8proc_option_t options = options_of(form);
  for (size_t at = 0; at < text.size();) {
    size_t last = at, next = at;  // a stretch of plain characters; the last may combine with what follows
    while (next < text.size()) {
      size_t end = next;
      if (!is_plain(code_point(text, end), form)) break;
      last = next;
      next = end;
    }
    if (next == text.size()) last = next;
    result.keep(at, last);
    at = last;
    while (next < text.size()) {
      size_t end = next;
      if (is_plain(code_point(text, end), form)) break;
      next = end;
    }
    if (next > at) put_mapped(text, at, next, options, result);
    at = next;
  }
  traced = result.finish();
}

void lower_case(TracedText& text) {
  rewrite_points(text, [](Rewriter& result, int64_t point, size_t begin, size_t end) {
    if (point == 0x130) {  // the only one whose lower case is two characters
      result.put("i\u0307", begin, end);
    } else {
      result.put(int64_t{utf8proc_tolower(static_cast<utf8proc_int32_t>(point))}, begin, end);
    }
  });
}

int64_t byte_character(unsigned char byte) noexcept { return kAlphabet.characters[byte]; }

int character_byte(int64_t point) noexcept {
  return point >= 0 && point < 512 ? kAlphabet.bytes[static_cast<size_t>(point)] : -1;
}

}  // namespace gputrain::tokenizers
