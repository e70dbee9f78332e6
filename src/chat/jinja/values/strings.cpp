#include "strings.hpp"

#include <algorithm>

#include "text.hpp"

namespace gputrain::chat {
namespace {

bool ends_line(int32_t point) {
  return (point >= '\n' && point <= '\r') || (point >= 0x1C && point <= 0x1E) || point == 0x85 || point == 0x2028 ||
         point == 0x2029;
}

Values split_at_space(std::string_view text, int64_t most, Budget& budget) {
  Values pieces;
  for (text = stripped(text, Side::left); !text.empty(); text = stripped(text, Side::left)) {
    budget.spend(1);
    if (most >= 0 && std::ssize(pieces) >= most) {
      pieces.emplace_back(text);
      break;
    }
    size_t end = 0;
    for (size_t next = 0; end < text.size(); end = next)
      if (is_space(next_point(text, next))) break;
    pieces.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return pieces;
}

size_t begin_of_last_word(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t last = begin - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    size_t at = last;
    if (is_space(next_point(text, at))) break;
    begin = last;
  }
  return begin;
}

Values split_at_space_from_end(std::string_view text, int64_t most, Budget& budget) {
  Values pieces;
  for (text = stripped(text, Side::right); !text.empty(); text = stripped(text, Side::right)) {
    budget.spend(1);
    const bool is_last = most >= 0 && std::ssize(pieces) >= most;
    const size_t begin = is_last ? 0 : begin_of_last_word(text);
    pieces.emplace_back(text.substr(begin));
    text = text.substr(0, begin);
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

void check_separator(std::string_view separator) {
  if (separator.empty()) throw Problem("the separator of a split must not be empty");
}

}  // namespace

std::string replaced(std::string_view text, std::string_view old, std::string_view by, int64_t count, Budget& budget) {
  std::string result;
  size_t at = 0;
  budget.spend_search(text, old);
  if (old.empty()) {
    for (; count != 0 && at <= text.size(); --count) {
      budget.spend(1);
      budget.append(result, by);
      const size_t begin = at;
      if (at == text.size()) return result;
      next_point(text, at);
      budget.append(result, text.substr(begin, at - begin));
    }
  }
  for (size_t found = old.empty() ? std::string_view::npos : text.find(old);
       count != 0 && found != std::string_view::npos; found = text.find(old, at), --count) {
    budget.spend(1);
    budget.append(result, text.substr(at, found - at));
    budget.append(result, by);
    at = found + old.size();
  }
  budget.append(result, text.substr(at));
  return result;
}

Values split(std::string_view text, std::optional<std::string_view> separator, int64_t most, Budget& budget) {
  if (!separator) return split_at_space(text, most, budget);
  check_separator(*separator);
  budget.spend_search(text, *separator);
  Values pieces;
  while (most < 0 || std::ssize(pieces) < most) {
    const size_t found = text.find(*separator);
    if (found == std::string_view::npos) break;
    budget.spend(1);
    pieces.emplace_back(text.substr(0, found));
    text.remove_prefix(found + separator->size());
  }
  pieces.emplace_back(text);
  return pieces;
}

Values split_from_end(std::string_view text, std::optional<std::string_view> separator, int64_t most, Budget& budget) {
  if (!separator) return split_at_space_from_end(text, most, budget);
  check_separator(*separator);
  budget.spend_search(text, *separator);
  Values pieces;
  while (most < 0 || std::ssize(pieces) < most) {
    const size_t found = text.rfind(*separator);
    if (found == std::string_view::npos) break;
    budget.spend(1);
    pieces.emplace_back(text.substr(found + separator->size()));
    text = text.substr(0, found);
  }
  pieces.emplace_back(text);
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string_view> lines_of(std::string_view text, bool keeps_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    if (!ends_line(next_point(text, at))) continue;
    if (text[end] == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keeps_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace gputrain::chat
