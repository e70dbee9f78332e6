#include "odd_characters.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

#include "gputrain/core/printable.hpp"

namespace gputrain::config {
namespace {

struct Range {
  uint32_t first, last;
  const char* name;
};

constexpr std::array<Range, 19> kInvisible{{{0x80, 0x9f, "a control character"},
                                            {0xa0, 0xa0, "a no-break space"},
                                            {0xad, 0xad, "a soft hyphen"},
                                            {0x61c, 0x61c, "a mark of direction"},
                                            {0x1680, 0x1680, "a space"},
                                            {0x180b, 0x180e, "an invisible mark"},
                                            {0x2000, 0x200a, "a space of another width"},
                                            {0x200b, 0x200b, "a zero-width space"},
                                            {0x200c, 0x200d, "a zero-width joiner"},
                                            {0x200e, 0x200f, "a mark of direction"},
                                            {0x2028, 0x2029, "a line separator"},
                                            {0x202a, 0x202e, "a mark of direction"},
                                            {0x202f, 0x202f, "a narrow no-break space"},
                                            {0x205f, 0x206f, "an invisible mark"},
                                            {0x2800, 0x2800, "an empty braille cell"},
                                            {0x3000, 0x3000, "a full-width space"},
                                            {0x3164, 0x3164, "an invisible letter"},
                                            {0xfeff, 0xfeff, "a byte order mark"},
                                            {0xffa0, 0xffa0, "an invisible letter"}}};
constexpr Range kCurlyQuotes{0x2018, 0x201f, "a curly quote"};
constexpr Range kFullWidth{0xff01, 0xff5e, ""};
constexpr uint32_t kFromFullWidthToAscii = 0xfee0;

bool contains(const Range& range, uint32_t code) { return code >= range.first && code <= range.last; }

/// Returns the code of a whole UTF-8 character.
uint32_t code_of(std::string_view character) {
  constexpr std::array<unsigned, 5> kBitsOfLead{0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t code = static_cast<unsigned char>(character[0]) & kBitsOfLead[character.size()];
  for (const char c : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3fu);
  return code;
}

std::string number_of(uint32_t code) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "U+%04X", static_cast<unsigned>(code));
  return text.data();
}

/// Describes a character beyond ASCII.
OddCharacter described(size_t offset, std::string_view character) {
  const uint32_t code = code_of(character);
  OddCharacter odd{.offset = offset, .text = std::string(character), .name = number_of(code)};
  const auto* invisible =
      std::ranges::find_if(kInvisible, [code](const Range& range) { return contains(range, code); });
  odd.is_invisible = invisible != kInvisible.end();
  odd.is_quote = contains(kCurlyQuotes, code);
  odd.is_full_width = !odd.is_invisible && contains(kFullWidth, code);
  if (odd.is_invisible) odd.name += " (" + std::string(invisible->name) + ")";
  if (odd.is_quote) odd.name += " (" + std::string(kCurlyQuotes.name) + ")";
  if (odd.is_full_width)
    odd.name += std::string(" (a full-width '") + static_cast<char>(code - kFromFullWidthToAscii) + "')";
  return odd;
}

/// Returns the first character beyond ASCII for which `fits` is true.
template <class Fits>
std::optional<OddCharacter> find(std::string_view text, Fits fits) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::max<size_t>(1, character_length(text, at));
    if (length > 1) {
      if (OddCharacter odd = described(at, text.substr(at, length)); fits(odd)) return odd;
    }
    at += length;
  }
  return std::nullopt;
}

/// Returns the line with blanks instead of comments and of texts in straight quotes.
std::string bare(std::string_view line) {
  std::string bare;
  char quote = '\0';
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == '\0' && c == '#' && (i == 0 || line[i - 1] == ' ')) break;
    const bool is_quote = c == '"' || c == '\'';
    bare += quote == '\0' && !is_quote ? c : ' ';
    if (is_quote && (quote == '\0' || quote == c)) quote = quote == '\0' ? c : '\0';
  }
  return bare;
}

}  // namespace

std::string OddCharacter::what() const {
  if (is_invisible) return "an invisible character, " + name;
  return name + (is_quote ? " does not quote in YAML" : " instead of the ASCII character");
}

std::string OddCharacter::hint() const {
  const std::string instead = is_invisible ? "replace it by a space, or remove it"
                              : is_quote   ? "write \" or '"
                                           : "write the ASCII character";
  return instead + "; if it is meant, put the whole text in straight quotes";
}

std::optional<OddCharacter> find_invisible(std::string_view text) {
  return find(text, [](const OddCharacter& odd) { return odd.is_invisible; });
}

std::optional<OddCharacter> find_look_alike(std::string_view text) {
  return find(text, [](const OddCharacter& odd) { return odd.is_look_alike(); });
}

std::optional<OddCharacter> find_bare_look_alike(std::string_view yaml) {
  for (size_t begin = 0; begin < yaml.size();) {
    const size_t end = std::min(yaml.find('\n', begin), yaml.size());
    if (auto odd = find_look_alike(bare(yaml.substr(begin, end - begin)))) {
      odd->offset += begin;
      return odd;
    }
    begin = end + 1;
  }
  return std::nullopt;
}

std::string beyond_ascii(std::string_view text) {
  const auto odd = find(text, [](const OddCharacter&) { return true; });
  if (!odd) return {};
  if (odd->is_invisible) return "it contains " + odd->name;
  return "'" + odd->text + "' is " + odd->name + (odd->is_look_alike() ? "" : ", no ASCII character");
}

}  // namespace gputrain::config
