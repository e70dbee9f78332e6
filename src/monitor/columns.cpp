#include "gputrain/monitor/columns.hpp"

#include <algorithm>
#include <cmath>

namespace gputrain::monitor {
namespace {

size_t width_of(const Column& column) { return std::max(column.width, characters_in(column.text)); }

}  // namespace

size_t characters_in(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }));
}

std::string coloured(const std::string& text, std::string_view code) {
  return code.empty() || text.empty() ? text : "\x1b[" + std::string(code) + "m" + text + "\x1b[0m";
}

size_t width_of(const std::vector<Column>& columns) {
  size_t all = columns.empty() ? 0 : columns.size() - 1;
  for (const Column& column : columns) all += width_of(column);
  return all;
}

std::vector<Column> fitted(std::vector<Column> columns, size_t room) {
  while (room > 0 && width_of(columns) > room) {
    const auto first_to_go = std::ranges::max_element(columns, {}, &Column::dispensable);
    if (first_to_go->dispensable == 0) break;
    columns.erase(first_to_go);
  }
  return columns;
}

std::string joined(const std::vector<Column>& columns, bool has_colour) {
  std::string line;
  size_t missing = 0;  // spaces after the text before
  for (const Column& column : columns) {
    if (!column.text.empty()) {
      line += std::string(missing, ' ') + coloured(column.text, has_colour ? column.colour : "");
      missing = 0;
    }
    missing += width_of(column) - characters_in(column.text) + 1;
  }
  return line;
}

std::string bar(double share, size_t width, bool unicode) {
  const double part = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0.0;
  const auto done = static_cast<size_t>(part * static_cast<double>(width));
  std::string text;
  for (size_t i = 0; i < width; ++i) text += i < done ? (unicode ? "━" : "=") : (unicode ? "─" : "-");
  return text;
}

}  // namespace gputrain::monitor
