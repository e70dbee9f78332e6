// Lines whose columns stand at the same places from line to line, in as much room as a terminal has.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gputrain::monitor {

struct Column {
  std::string text;
  size_t width = 0;         // characters that it takes, if the text has fewer
  int dispensable = 0;      // where room is short, columns with the highest number go first; 0: stays
  const char* colour = "";  // code of a terminal: "32" for green; empty: none
};

/// Line that is redrawn while something goes on.
struct LiveLine {
  std::string label;                 // first word: "step", "eval"
  std::optional<double> share = {};  // part that is done, from 0 to 1, as a bar; empty: unknown
  std::vector<Column> columns = {};
};

/// Returns the number of characters of UTF-8 text.
size_t characters_in(std::string_view text);

/// Returns the number of characters of the columns with a space between them.
size_t width_of(const std::vector<Column>& columns);

/// Leaves columns out until the others have at most `room` characters; 0: any number.
std::vector<Column> fitted(std::vector<Column> columns, size_t room);

/// Returns the columns as a line.
std::string joined(const std::vector<Column>& columns, bool has_colour = false);

/// Returns `text` in a colour of a terminal; an empty code: as it is.
std::string coloured(const std::string& text, std::string_view code);

/// Returns a bar of so many characters, drawn with lines or, without `unicode`, with "=".
std::string bar(double share, size_t width, bool unicode);

}  // namespace gputrain::monitor
