#include "gputrain/inspect/text_table.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "gputrain/core/error.hpp"

namespace gputrain::app {
namespace {

/// Returns the number of UTF-8 code points.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

size_t width_of_lines(const std::string& text) {
  size_t width = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    width = std::max(width, width_of(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return width;
}

}  // namespace

void TextTable::add(std::vector<std::string> cells) {
  GPUTRAIN_ASSERT(cells.size() <= alignment_.size(), "a row has more cells than the table has columns");
  cells.resize(alignment_.size());
  for (std::string& cell : cells) {
    for (char& c : cell) {
      if (std::iscntrl(static_cast<unsigned char>(c)) != 0) c = '?';
    }
  }
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(size_t most, const std::vector<std::string>& spare) const {
  TextTable narrower = *this;
  for (const std::string& name : spare) {
    if (most == 0 || width_of_lines(narrower.text()) <= most) break;
    const auto& head = rows_.front();
    const auto column = static_cast<size_t>(std::ranges::find(head, name) - head.begin());
    for (auto& row : narrower.rows_)
      if (column < row.size()) row[column].clear();
  }
  return narrower.text();
}

std::string TextTable::text() const {
  std::vector<size_t> widths(alignment_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], width_of(row[column]));
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    bool first = true;
    for (size_t column = 0; column < row.size(); ++column) {
      if (widths[column] == 0) continue;
      const std::string padding(widths[column] - width_of(row[column]), ' ');
      line += std::exchange(first, false) ? "" : "  ";
      line += alignment_[column] == 'r' ? padding + row[column] : row[column] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string shortened(const std::string& text, size_t width) {
  if (text.size() <= width) return text;
  const size_t front = (width - 2) / 2;
  return text.substr(0, front) + ".." + text.substr(text.size() - (width - 2 - front));
}

}  // namespace gputrain::app
