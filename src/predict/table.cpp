#include "gputrain/predict/table.hpp"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace gputrain::app {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::pair<std::string, std::string>>;  // names of columns, and texts

std::string text_of(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string joined;
  for (const Json& one : value) joined += (joined.empty() ? "" : "|") + text_of(one);
  return joined;
}

/// Returns the cells of an object; those of an object inside have the names `NAME_KEY`.
Cells cells_of(const Json& object) {
  Cells cells;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_object()) {
      cells.emplace_back(name, text_of(value));
      continue;
    }
    for (const auto& [key, inside] : value.items()) cells.emplace_back(name + "_" + key, text_of(inside));
  }
  return cells;
}

/// Returns a row for the object, or one for each of its words.
std::vector<Cells> rows_of(const Json& object, size_t number) {
  if (!object.contains("tags")) return {cells_of(object)};
  std::vector<Cells> rows;
  for (size_t i = 0; i < object["tags"].size(); ++i)
    rows.push_back({{"text", std::to_string(number)},
                    {"word", text_of(object["words"][i])},
                    {"tag", text_of(object["tags"][i])},
                    {"probability", text_of(object["probabilities"][i])}});
  return rows;
}

/// Returns the cell as the table has it. Tables with tabs have no quotes.
std::string written(std::string cell, char separator) {
  if (separator == '\t') {
    for (char& c : cell)
      if (c == '\t' || c == '\n' || c == '\r') c = ' ';
    return cell;
  }
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string table_of(const std::string& json_lines, char separator) {
  std::istringstream lines(json_lines);
  std::string table;
  const auto add = [&](const Cells& row, const auto& part) {
    for (size_t i = 0; i < row.size(); ++i)
      table += (i == 0 ? "" : std::string(1, separator)) + written(row[i].*part, separator);
    table += "\n";
  };
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    for (const Cells& row : rows_of(Json::parse(line), ++number)) {
      if (table.empty()) add(row, &Cells::value_type::first);
      add(row, &Cells::value_type::second);
    }
  }
  return table;
}

}  // namespace gputrain::app
