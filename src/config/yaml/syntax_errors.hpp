// Turns errors of the YAML parser into messages that say what to fix.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gputrain::config {

struct SyntaxError {
  std::string what;
  std::string hint;
  bool is_above = false;  // the mistake is one line above the place that the parser reports
};

/// The text around the place that the parser reports.
struct SyntaxContext {
  std::string_view line;
  std::string_view before;  // the part of the line before that place
  std::string_view line_above;
};

SyntaxError explain_syntax_error(std::string_view parser_message, const SyntaxContext& context);

/// Names the language of a file that cannot be read, if that is clearly not YAML.
std::optional<SyntaxError> other_language(std::string_view name, std::string_view text);

/// Returns the offset in bytes of a tab in the indentation of `line`, if there is one.
std::optional<size_t> tab_in_indentation(std::string_view line);

}  // namespace gputrain::config
