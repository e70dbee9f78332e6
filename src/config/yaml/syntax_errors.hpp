// The YAML parser's complaints in words that say what to mend.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gputrain::config {

struct SyntaxError {
  std::string what;
  std::string hint;
  bool is_above = false;  // the fault is in the line above the one the parser points at
};

/// What stands around the place that the parser points at.
struct SyntaxContext {
  std::string_view line;
  std::string_view before;  // the part of the line before that place
  std::string_view line_above;
};

SyntaxError explain_syntax_error(std::string_view parser_message, const SyntaxContext& context);

/// What a job file is that cannot be read, where it is plainly of another language.
std::optional<SyntaxError> other_language(std::string_view name, std::string_view text);

/// The number of bytes before a tab in the indentation of `line`, if there is one.
std::optional<size_t> tab_in_indentation(std::string_view line);

}  // namespace gputrain::config
