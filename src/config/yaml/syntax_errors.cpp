#include "syntax_errors.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "gputrain/core/printable.hpp"

namespace gputrain::config {
namespace {

struct Explanation {
  std::string_view message;  // start of yaml-cpp's message
  std::string_view what;
  std::string_view hint;
};

constexpr std::array<Explanation, 15> kExplanations{{
    {"end of map not found", "this line does not line up with the keys above it",
     "keys of one group start in the same column; is a ':' or a space after it missing?"},
    {"end of sequence not found", "this line does not line up with the list above it",
     "items of one list start with '- ' in the same column"},
    {"illegal EOF in scalar", "a quote is opened and never closed", "add the closing quote"},
    {"illegal map value", "a second ': ' on one line", "put text with ': ' in quotes; groups start on the next line"},
    {"illegal map key", "a key is not allowed here", "check the indentation"},
    {"illegal block entry", "a list cannot start here", "start the list on the next line"},
    {"illegal flow end", "this bracket does not match the one before it", "each '[' needs its ']', each '{' its '}'"},
    {"illegal tab", "a tab in the indentation", "YAML indents with spaces only"},
    {"unknown escape character", "an unknown escape in a \"text\"",
     "write \\\\ for a backslash, or use 'single quotes', which escape nothing"},
    {"bad character found while scanning hex", "a broken \\x, \\u or \\U escape",
     "\\x takes two, \\u four, \\U eight hexadecimal digits"},
    {"invalid unicode", "an escape for a character that does not exist", ""},
    {"the referenced anchor is not defined", "an alias (*name) to an anchor (&name) that is not above it",
     "to write a text that starts with '*', put it in quotes"},
    {"alias not found", "this '*' does not start an alias", "put text that starts with '*' in quotes"},
    {"anchor not found", "this '&' does not start an anchor", "put text that starts with '&' in quotes"},
    {"illegal document indicator", "a `---` or `...` inside a quoted text", "a quote before it is never closed"},
}};

/// Explains `seed:7`, or a key without ':': YAML joins such a line with the next one.
std::optional<SyntaxError> explain_line_above(std::string_view above) {
  const size_t begin = above.find_first_not_of(' ');
  if (begin == std::string_view::npos || above.find(": ") != std::string_view::npos || above.ends_with(':')) return {};
  above.remove_prefix(begin);
  if (above.find_first_of("#\"'[]{}") != std::string_view::npos || above.starts_with("- ")) return {};
  const size_t colon = above.find(':');
  if (colon == std::string_view::npos) {
    return SyntaxError{"this line is not `key: value`", "is a ':' missing?", true};
  }
  const std::string mended = printable(above.substr(0, colon)) + ": " + printable(above.substr(colon + 1));
  return SyntaxError{"no space after the ':'", "write `" + mended + "`", true};
}

}  // namespace

std::optional<SyntaxError> other_language(std::string_view name, std::string_view text) {
  bool has_table = false, has_setting = false, is_python = name.ends_with(".py");
  const bool is_script = text.starts_with("#!") && !name.ends_with(".yaml") && !name.ends_with(".yml");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    has_table |=
        line.starts_with('[') && line.find(']') != std::string_view::npos && line.find(',') == std::string_view::npos;
    has_setting |= line.find(" = ") != std::string_view::npos && line.find(": ") == std::string_view::npos;
    is_python |= line.starts_with("import ") || line.starts_with("def ") ||
                 (line.starts_with("from ") && line.find(" import ") != std::string_view::npos);
  }
  const std::string hint = "a job is YAML: `gputrain describe job` and configs/ show its keys";
  if (is_python) return SyntaxError{"is a Python program", hint};
  if (is_script) return SyntaxError{"is a script", hint};
  if (name.ends_with(".toml") || (has_table && has_setting))
    return SyntaxError{"is TOML", "a job is YAML: `[train]` and `max_steps = 10` are `train: {max_steps: 10}`"};
  return {};
}

std::optional<size_t> tab_in_indentation(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t");
  const size_t tab = line.substr(0, first).find('\t');
  return tab == std::string_view::npos ? std::nullopt : std::optional<size_t>(tab);
}

SyntaxError explain_syntax_error(std::string_view parser_message, const SyntaxContext& context) {
  if (tab_in_indentation(context.line)) return {"a tab in the indentation", "YAML indents with spaces only"};
  if (parser_message.starts_with("unknown token")) {
    if (context.line.substr(context.before.size()).starts_with('?'))
      return {"a '?' right before a bracket, which YAML takes for the mark of a key", "put the text in quotes"};
    return {"this text starts with a character that YAML reserves (one of @ ` %)", "put the text in quotes"};
  }
  if (parser_message.starts_with("end of map not found") &&
      context.before.find_first_not_of(' ') != std::string_view::npos) {
    return {"text after a value that has ended", "put the whole value into one pair of quotes"};
  }
  if (parser_message.starts_with("illegal map value")) {
    if (std::optional<SyntaxError> above = explain_line_above(context.line_above)) return *above;
    if (context.before.find(": ") == std::string_view::npos) {
      return {"a key below a key that already has a value", "check the indentation, and the value of the line above"};
    }
  }
  for (const Explanation& known : kExplanations) {
    if (parser_message.starts_with(known.message)) return {std::string(known.what), std::string(known.hint)};
  }
  return {"this is not YAML: " + printable(parser_message), ""};
}

}  // namespace gputrain::config
