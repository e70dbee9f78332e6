// Cuts the source of a template into tokens, with the white space that Jinja removes around tags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gputrain::chat {

/// A syntax error at a line.
struct SyntaxProblem {
  std::string what;
  int line;
};

struct Token {
  enum class Kind { data, output_begin, output_end, block_begin, block_end, name, string, whole, real, symbol, end };
  Kind kind = Kind::end;
  std::string text;  // for a string, its value
  int line = 1;

  bool is(Kind kind_, std::string_view text_) const { return kind == kind_ && text == text_; }
};

/// Splits a template into tokens, as Jinja with trim_blocks and lstrip_blocks. Throws SyntaxProblem.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace gputrain::chat
