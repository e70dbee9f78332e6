#include "parse.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>

#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "odd_characters.hpp"
#include "source.hpp"
#include "syntax_errors.hpp"
#include "tree_builder.hpp"

namespace gputrain::config {
namespace {

std::string_view line_of(std::string_view text, int line) {
  if (line < 1) return {};
  for (int i = 1; i < line; ++i) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

/// Reports a character that looks like one of YAML's, between what is open, or the line above, and the end of the line.
bool note_look_alike(const TreeBuilder& builder, const SourceLocation& location, Problems& problems) {
  if (location.line == 0) return false;
  const std::string_view text = location.source->text;
  const SourceLocation open = builder.innermost_open();
  SourceLocation from{location.source, std::max(location.line - 1, 1), 1};
  if (open.line > 0 && open.line < from.line) from = open;
  const std::string_view rest = builder.text_at(from), last = builder.text_at(location);
  const auto odd =
      find_bare_look_alike(rest.substr(0, rest.size() - last.size() + std::min(last.find('\n'), last.size())));
  if (!odd) return false;
  const auto begin = static_cast<size_t>(rest.data() - text.data());
  problems.add(location_at(location.source, begin + odd->offset), odd->what(), odd->hint());
  return true;
}

/// Reports a parser error in plain words, at the place of the mistake instead of where the parser found it.
void note_syntax_error(const YAML::Exception& error, const TreeBuilder& builder, const std::string& text,
                       Problems& problems) {
  SourceLocation location = builder.location(error.mark);
  if (note_look_alike(builder, location, problems)) return;
  const bool in_map = error.msg == YAML::ErrorMsg::END_OF_MAP_FLOW;
  if (in_map || error.msg == YAML::ErrorMsg::END_OF_SEQ_FLOW) {
    const std::string_view around = builder.text_at({location.source, location.line, location.column - 1});
    if (around.starts_with(":{") || around.starts_with(":[")) {
      problems.add(location, "no space after the ':'", "write one before the '" + std::string(1, around[1]) + "'");
      return;
    }
    const std::string end = in_map ? "'}'" : "']'";
    problems.add(builder.innermost_open(), std::string(in_map ? "this '{'" : "this '['") + " is not closed",
                 "a ',' or a " + end + " is missing before " + location.to_string());
    return;
  }
  const std::string_view line = line_of(text, location.line), above = line_of(text, location.line - 1);
  const auto column = static_cast<size_t>(std::max(error.mark.column, 0));
  SyntaxError syntax = explain_syntax_error(error.msg, {line, line.substr(0, column), above});
  if (const std::optional<size_t> tab = tab_in_indentation(line)) location.column = static_cast<int>(*tab) + 1;
  if (syntax.is_above) {
    --location.line;
    location.column = static_cast<int>(above.find_first_not_of(' ')) + 1;
  }
  problems.add(location, std::move(syntax.what), std::move(syntax.hint));
}

/// Reports a second document.
class NoMore final : public YAML::EventHandler {
 public:
  NoMore(const TreeBuilder& builder, Problems& problems) : builder_(builder), problems_(problems) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    problems_.add(builder_.location(mark), "a second document starts here",
                  "one file holds one job; split it at the `---`");
    throw TreeBuilder::Stop();
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  const TreeBuilder& builder_;
  Problems& problems_;
};

}  // namespace

std::optional<Node> parse_yaml(const std::shared_ptr<const Source>& source, Budget& budget, Problems& problems) {
  if (!is_clean(source, problems)) return std::nullopt;
  TreeBuilder builder(source, budget, problems);
  try {
    std::istringstream stream(source->text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return Node{.location = {source, 1, 1}};
    NoMore no_more(builder, problems);
    parser.HandleNextDocument(no_more);
    return builder.take_root();
  } catch (const TreeBuilder::Stop&) {
    return std::nullopt;
  } catch (const YAML::Exception& error) {
    note_syntax_error(error, builder, source->text, problems);
    return std::nullopt;
  }
}

}  // namespace gputrain::config
