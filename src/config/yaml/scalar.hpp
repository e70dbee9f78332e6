// Parses and writes scalars of the YAML 1.2 core schema and our values with units.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/config/value_types.hpp"
#include "gputrain/core/printable.hpp"

namespace gputrain::config {

/// The type of an unquoted scalar.
enum class Plain { null, boolean, integer, number, text };
Plain classify(std::string_view plain);

/// A value, or the reason why the text is invalid.
template <class T>
struct Parsed {
  std::optional<T> value = {};
  std::string problem = {};  // what is wrong with a text of the right form; empty: wrong form
  std::string hint = {};     // what to write; may be empty
};

Parsed<int64_t> parse_integer(std::string_view text);
Parsed<double> parse_number(std::string_view text);
Parsed<Length> parse_length(std::string_view text);
Parsed<Duration> parse_duration(std::string_view text);

/// Returns the shortest text that reads back to the same double and looks like a float: "0.1", "256.0", "1.0e-05".
std::string number_text(double value);

/// Returns the same without the ".0" of whole numbers, for messages and values with a unit.
std::string plain_number(double value);

/// Returns `text` as a YAML scalar: without quotes if every reader takes it for text, else in double quotes.
std::string scalar_text(std::string_view text);

/// Returns `text` in double quotes, with control characters escaped.
std::string double_quoted(std::string_view text);

/// Returns user text for a message: in single quotes, printable, at most about sixty characters.
std::string shown(std::string_view text);

/// Returns "a, b or c".
std::string either(const std::vector<std::string>& names);

}  // namespace gputrain::config
