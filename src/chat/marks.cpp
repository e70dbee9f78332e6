#include "marks.hpp"

#include <algorithm>
#include <cctype>

#include "jinja/values/text.hpp"

namespace gputrain::chat {
namespace {

bool is_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte) != 0 || c == '_';
}

}  // namespace

bool is_blank(std::string_view text) { return stripped(text, Side::both).empty(); }

std::string_view part(const std::string& text, const Range& range) {
  return std::string_view(text).substr(range.begin, range.end - range.begin);
}

size_t mark_at(std::string_view text) {
  constexpr size_t kLongest = 80;
  if (text.empty() || (text[0] != '<' && text[0] != '[')) return 0;
  const bool is_angle = text[0] == '<';
  for (size_t i = 1; i < std::min(text.size(), kLongest); ++i) {
    const char c = text[i];
    if (c == (is_angle ? '>' : ']')) return i > 1 ? i + 1 : 0;
    const bool fits = is_angle ? c != '<' && static_cast<unsigned char>(c) > ' ' && c != '='
                               : (c >= 'A' && c <= 'Z') || c == '_' || c == '/';
    if (!fits) return 0;
  }
  return 0;
}

size_t shared_beginning(std::string_view text, std::string_view other) {
  size_t shared = static_cast<size_t>(std::ranges::mismatch(text, other).in1 - text.begin());
  if (shared == other.size() || shared == text.size()) return shared;
  const size_t open = text.substr(0, shared).find_last_of("<[");
  if (open != std::string_view::npos) {
    const std::string_view rest = text.substr(open, shared - open);
    if (rest.find_first_of(">] \n") == std::string_view::npos) return open;
  }
  const bool splits_word = is_word(text[shared]) || is_word(other[shared]);
  while (splits_word && shared > 0 && is_word(text[shared - 1])) --shared;
  return shared;
}

size_t ending_mark(std::string_view text) {
  size_t begin = text.size();
  for (std::string_view rest = stripped(text, Side::right); !rest.empty();) {
    const size_t open = rest.find_last_of("<[");
    if (open == std::string_view::npos || mark_at(rest.substr(open)) != rest.size() - open) break;
    begin = open;
    rest = stripped(rest.substr(0, open), Side::right);
  }
  return begin;
}

size_t beginning_mark(std::string_view text) {
  const size_t spaces = text.size() - stripped(text, Side::left).size();
  const std::string_view mark = text.substr(spaces, mark_at(text.substr(spaces)));
  return mark.starts_with("<|") || mark.starts_with("<｜") ? spaces + mark.size() : 0;
}

}  // namespace gputrain::chat
