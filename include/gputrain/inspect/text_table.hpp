// Rows of cells, printed in aligned columns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gputrain::app {

class TextTable {
 public:
  /// One letter per column: 'l' aligns to the left, 'r' to the right.
  explicit TextTable(std::string alignment) : alignment_(std::move(alignment)) {}

  /// Missing cells are empty. What a terminal would obey instead of showing becomes '?': names come from files.
  void add(std::vector<std::string> cells);

  /// Lines that end in '\n'. Columns without any content take no room.
  std::string text() const;

 private:
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
};

/// At most `width` columns of a text, its middle left out where it has more.
std::string shortened(const std::string& text, size_t width);

}  // namespace gputrain::app
