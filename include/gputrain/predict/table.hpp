// Predictions as a table.
#pragma once

#include <string>

namespace gputrain::app {

/// Makes a table of predictions, which are JSON objects in lines: a row of names, and a row for each object, or for
/// each of its words with a tag. Lists have bars between their parts.
std::string table_of(const std::string& json_lines, char separator);

}  // namespace gputrain::app
