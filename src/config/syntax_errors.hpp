// The YAML parser's complaints in words that say what to mend.
#pragma once

#include <string>
#include <string_view>

namespace gputrain::config {

struct SyntaxError {
  std::string what;
  std::string hint;
};

/// `line` is the text of the line the parser points at.
SyntaxError explain_syntax_error(std::string_view parser_message, std::string_view line);

}  // namespace gputrain::config
