#include "tree_builder.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "odd_characters.hpp"
#include "scalar.hpp"
#include "source.hpp"

namespace gputrain::config {
namespace {

constexpr std::string_view kMergeKey = "<<";
constexpr std::string_view kStandardTag = "tag:yaml.org,2002:";
constexpr std::string_view kReplaceTag = "!replace";

struct Size {
  size_t nodes = 1;
  size_t bytes = 0;
};

Size size_of(const Node& node) {
  Size size{1, node.text.size() + node.key.size()};
  for (const Node& part : node.parts) {
    const Size inner = size_of(part);
    size.nodes += inner.nodes;
    size.bytes += inner.bytes;
  }
  return size;
}

size_t depth_of(const Node& node) {
  size_t deepest = 0;
  for (const Node& part : node.parts) deepest = std::max(deepest, depth_of(part));
  return deepest + (node.kind == Node::Kind::list || node.kind == Node::Kind::map ? 1 : 0);
}

}  // namespace

TreeBuilder::TreeBuilder(std::shared_ptr<const Source> source, Budget& budget, Problems& problems)
    : source_(std::move(source)), line_offsets_{0}, budget_(budget), problems_(problems) {
  for (size_t i = 0; i < source_->text.size(); ++i) {
    if (source_->text[i] == '\n') line_offsets_.push_back(i + 1);
  }
}

SourceLocation TreeBuilder::location(const YAML::Mark& mark) const {
  if (mark.is_null() || mark.line < 0) return {source_, 0, 0};
  const auto line = static_cast<size_t>(mark.line);
  SourceLocation location{source_, mark.line + 1, 1};
  if (line >= line_offsets_.size()) return location;
  const size_t begin = line_offsets_[line];
  for (size_t i = begin; i < begin + static_cast<size_t>(mark.column) && i < source_->text.size(); ++i) {
    if ((static_cast<unsigned char>(source_->text[i]) & 0xc0u) != 0x80u) ++location.column;
  }
  return location;
}

std::string_view TreeBuilder::text_at(const SourceLocation& location) const {
  if (location.line < 1 || static_cast<size_t>(location.line) > line_offsets_.size()) return {};
  std::string_view rest = std::string_view(source_->text).substr(line_offsets_[static_cast<size_t>(location.line) - 1]);
  for (int column = 1; column < location.column && !rest.empty(); ++column)
    rest.remove_prefix(std::max<size_t>(1, character_length(rest, 0)));
  return rest;
}

void TreeBuilder::stop(const SourceLocation& location, std::string what, std::string hint) {
  problems_.add(location, std::move(what), std::move(hint));
  throw Stop();
}

void TreeBuilder::spend(size_t nodes, size_t bytes, const SourceLocation& location) {
  if (nodes > budget_.nodes || bytes > budget_.bytes) {
    stop(location, "the job grows to more than 100,000 values or 16 MiB of text here",
         "do aliases (*name) of aliases multiply it?");
  }
  budget_.nodes -= nodes;
  budget_.bytes -= bytes;
}

void TreeBuilder::check_tag(const std::string& tag, const SourceLocation& location) {
  if (tag.empty() || tag == "?" || tag == "!") return;
  const std::string_view view = tag;
  if (view.starts_with(kStandardTag)) {
    const std::string_view type = view.substr(kStandardTag.size());
    for (const std::string_view known : {"str", "int", "float", "bool", "null", "map", "seq"}) {
      if (type == known) return;
    }
  }
  const std::string written = view.starts_with(kStandardTag) ? "!!" + tag.substr(kStandardTag.size()) : tag;
  if (tag == kReplaceTag)
    stop(location, "!replace is for a group of keys", "leave it out: single values and lists always replace");
  stop(location, "the tag " + shown(written) + " is not supported", "leave it out");
}

std::string_view TreeBuilder::text_at(const YAML::Mark& mark) const {
  const auto line = static_cast<size_t>(std::max(mark.line, 0));
  if (line >= line_offsets_.size()) return {};
  const size_t offset = line_offsets_[line] + static_cast<size_t>(std::max(mark.column, 0));
  return std::string_view(source_->text).substr(std::min(offset, source_->text.size()));
}

/// Refuses a quote that is still open at the end of the file, which yaml-cpp accepts.
void TreeBuilder::check_quotes(const YAML::Mark& mark, const SourceLocation& location) {
  const std::string_view text = text_at(mark);
  if (!text.starts_with('"') && !text.starts_with('\'')) return;
  const char quote = text[0];
  for (size_t at = 1; at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (text[at] == quote) {
      if (quote == '"' || at + 1 >= text.size() || text[at + 1] != quote) return;
      ++at;  // two single quotes stand for one
    }
  }
  stop(location, "this quote is never closed", "add the closing quote");
}

/// Refuses, outside of quotes, characters that look right on the screen and are not.
void TreeBuilder::check_characters(const YAML::Mark& mark, std::string_view value, bool is_key) {
  std::optional<OddCharacter> odd = is_key ? find_look_alike(value) : find_invisible(value);
  if (!odd && !is_key) {
    odd = find_look_alike(value);
    if (odd && (odd->offset > 0 || !odd->is_quote)) return;  // "It\u2019s fine" is a text
  }
  if (!odd) return;
  const std::string_view rest = text_at(mark);
  const auto begin = static_cast<size_t>(rest.data() - source_->text.data());
  const size_t offset = std::min(rest.find(odd->text), rest.size());
  stop(location_at(source_, begin + offset), odd->what(), odd->hint());
}

/// Refuses a bracket that is not closed on its line, which yaml-cpp takes as the start of a key.
void TreeBuilder::refuse_as_key(const YAML::Mark& mark, const SourceLocation& location) {
  const std::string_view text = text_at(mark);
  const std::string_view line = text.substr(0, text.find('\n'));
  const bool is_bracket = line.starts_with('[') || line.starts_with('{');
  const auto opened = std::count_if(line.begin(), line.end(), [](char c) { return c == '[' || c == '{'; });
  const auto closed = std::count_if(line.begin(), line.end(), [](char c) { return c == ']' || c == '}'; });
  if (is_bracket && opened > closed) {
    stop(location, "this '" + std::string(1, line[0]) + "' is not closed",
         std::string("a ',' or a '") + (line[0] == '[' ? ']' : '}') + "' is missing");
  }
  stop(location, "a list or a group where a key should be",
       "keys are plain words; a {{ template }} is written ${name} here, and set under `vars:`");
}

void TreeBuilder::OnDocumentStart(const YAML::Mark&) { root_ = Node{.location = {source_, 1, 1}}; }

void TreeBuilder::OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) {
  Node node{.location = location(mark)};
  if (!open_.empty() && open_.back().node.kind == Node::Kind::map && !open_.back().expects_key) {
    node.location = open_.back().key_location;  // an empty `key:` has no place of its own
    split_key(open_.back(), node);
  }
  add(std::move(node), anchor);
}

void TreeBuilder::OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                           const std::string& value) {
  Node node{.kind = Node::Kind::scalar, .text = value, .location = location(mark)};
  check_tag(tag, node.location);
  check_quotes(mark, node.location);
  node.quoted = tag == "!" || tag == std::string(kStandardTag) + "str";
  const bool is_key = !open_.empty() && open_.back().expects_key;
  if (tag == "?") check_characters(mark, value, is_key);
  if (!node.quoted && !is_key && classify(value) == Plain::null) node.kind = Node::Kind::null;
  add(std::move(node), anchor);
}

void TreeBuilder::OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) {
  const SourceLocation here = location(mark);
  const auto found = anchors_.find(anchor);
  if (found == anchors_.end()) stop(here, "an alias inside the value that it names", "a value cannot contain itself");
  const Size size = size_of(found->second);
  spend(size.nodes, size.bytes, here);
  if (open_.size() + depth_of(found->second) > kMaxDepth) {
    stop(here, "values nested more than 64 deep", "do aliases (*name) nest inside each other?");
  }
  Node copy = found->second;
  copy.key.clear();
  add(std::move(copy), 0);
}

void TreeBuilder::OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                                  YAML::EmitterStyle::value) {
  open(Node::Kind::list, mark, tag, anchor);
}

void TreeBuilder::OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                             YAML::EmitterStyle::value) {
  open(Node::Kind::map, mark, tag, anchor);
}

void TreeBuilder::open(Node::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
  const SourceLocation here = location(mark);
  const bool replaces = tag == kReplaceTag && kind == Node::Kind::map && !is_part_of_list();
  if (!replaces) check_tag(tag, here);
  if (open_.size() >= kMaxDepth) stop(here, "values nested more than 64 deep");
  if (!open_.empty() && open_.back().expects_key) {
    refuse_as_key(mark, here);
  }
  open_.push_back({.node = Node{.kind = kind, .replaces = replaces, .location = here},
                   .anchor = anchor,
                   .expects_key = kind == Node::Kind::map});
}

void TreeBuilder::close() {
  Frame frame = std::move(open_.back());
  open_.pop_back();
  merge_into(frame);
  add(std::move(frame.node), frame.anchor);
}

void TreeBuilder::add(Node node, YAML::anchor_t anchor) {
  const bool is_key = !open_.empty() && open_.back().expects_key;
  spend(is_key ? 0 : 1, node.text.size(), node.location);
  if (anchor != 0) {
    const Size size = size_of(node);
    spend(size.nodes, size.bytes, node.location);
    anchors_[anchor] = node;
  }
  if (open_.empty()) {
    root_ = std::move(node);
    return;
  }
  Frame& frame = open_.back();
  if (frame.node.kind == Node::Kind::list) {
    frame.node.parts.push_back(std::move(node));
  } else if (frame.expects_key) {
    take_key(node);
  } else {
    frame.expects_key = true;
    if (frame.drops_value) return;
    if (frame.key == kMergeKey) {
      frame.merged.push_back(std::move(node));
      return;
    }
    node.key = frame.key;
    node.key_location = frame.key_location;
    frame.node.parts.push_back(std::move(node));
  }
}

void TreeBuilder::take_key(const Node& node) {
  Frame& frame = open_.back();
  if (node.kind == Node::Kind::list || node.kind == Node::Kind::map) {
    stop(node.location, "a list or a group where a key should be", "keys are plain words");
  }
  if (node.kind == Node::Kind::null || node.text.empty()) {
    const std::string_view text = text_at(node.location);
    if (text.starts_with("//") || text.starts_with("/*"))
      stop(node.location, "this is not a YAML comment", "comments start with '#', also inside braces");
    stop(node.location, "a value without a key before its ':'");
  }
  frame.expects_key = false;
  frame.key = node.text;
  frame.key_is_quoted = node.quoted;
  frame.key_location = node.location;
  const auto [first, is_new] = frame.seen.emplace(node.text, node.location);
  frame.drops_value = !is_new;
  if (!is_new) {
    problems_.add(node.location, "the key " + shown(node.text) + " is given twice",
                  "the first is at " + first->second.to_string() + "; keep one of them");
  }
}

/// Splits `{lr:1e-4}`: without a space after the colon, YAML takes all of it as a key.
void TreeBuilder::split_key(Frame& frame, Node& value) {
  const size_t colon = frame.key.find(':');
  if (frame.key_is_quoted || colon == 0 || colon == std::string::npos || colon + 1 == frame.key.size()) return;
  value.kind = Node::Kind::scalar;
  value.text = frame.key.substr(colon + 1);
  value.is_broken = true;  // it is reported here
  frame.key.resize(colon);
  problems_.add(frame.key_location, "no space after the ':'",
                "write `" + printable(frame.key) + ": " + printable(value.text) + "`");
}

/// Adds, for `<<: *base`, the keys of another map that this map lacks; the first of several maps wins.
void TreeBuilder::merge_into(Frame& frame) {
  std::vector<Node> bases;
  for (Node& merged : frame.merged) {
    if (merged.kind == Node::Kind::list) {
      for (Node& part : merged.parts) bases.push_back(std::move(part));
    } else {
      bases.push_back(std::move(merged));
    }
  }
  for (Node& base : bases) {
    if (base.kind != Node::Kind::map) stop(base.location, "`<<` takes a map, or a list of maps", "as in `<<: *base`");
    for (Node& part : base.parts) {
      if (!frame.seen.emplace(part.key, part.key_location).second) continue;
      frame.node.parts.push_back(std::move(part));
    }
  }
}

}  // namespace gputrain::config
