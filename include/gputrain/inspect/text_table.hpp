// Table of text in aligned columns.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace gputrain::app {

class TextTable {
 public:
  /// Takes one letter per column: 'l' aligns to the left, 'r' to the right.
  explicit TextTable(std::string alignment) : alignment_(std::move(alignment)) {}

  /// Adds a row; missing cells are empty. Control characters, which a terminal would obey, become '?'.
  void add(std::vector<std::string> cells);

  /// Returns lines that end in '\n'. Omits columns without content.
  std::string text() const;
  /// Returns lines of at most `most` characters, as far as it takes to leave out columns of `spare`, which are named by
  /// their first cells, the least important first. `most` 0: leaves out none.
  std::string text(size_t most, const std::vector<std::string>& spare) const;

 private:
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
};

/// Shortens a text to `width` columns by cutting out its middle.
std::string shortened(const std::string& text, size_t width);

}  // namespace gputrain::app
