// Builds the tree of nodes from yaml-cpp's events and enforces the limits while reading.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/mark.h>

#include "parse.hpp"

namespace gputrain::config {

class TreeBuilder final : public YAML::EventHandler {
 public:
  /// Stops the parser; the problem is already reported.
  struct Stop {};

  TreeBuilder(std::shared_ptr<const Source> source, Budget& budget, Problems& problems);

  Node take_root() { return std::move(root_); }
  /// Returns the place of `mark`, with the column in characters.
  SourceLocation location(const YAML::Mark& mark) const;
  /// Returns the source text from `location` on.
  std::string_view text_at(const SourceLocation& location) const;

  /// Returns the start of the innermost open list or map.
  SourceLocation innermost_open() const {
    return open_.empty() ? SourceLocation{source_, 0, 0} : open_.back().node.location;
  }

  void OnDocumentStart(const YAML::Mark& mark) override;
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override;
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override;
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override;
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override;
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override;
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    Node node;
    YAML::anchor_t anchor = 0;
    bool expects_key = false;
    bool drops_value = false;  // the key is a duplicate
    std::string key = {};
    bool key_is_quoted = false;
    SourceLocation key_location = {};
    std::map<std::string, SourceLocation> seen = {};
    std::vector<Node> merged = {};  // values of `<<`
  };

  void open(Node::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor);
  void close();
  void add(Node node, YAML::anchor_t anchor);
  void take_key(const Node& node);
  void merge_into(Frame& frame);
  void spend(size_t nodes, size_t bytes, const SourceLocation& location);
  std::string_view text_at(const YAML::Mark& mark) const;
  [[noreturn]] void refuse_as_key(const YAML::Mark& mark, const SourceLocation& location);
  void check_quotes(const YAML::Mark& mark, const SourceLocation& location);
  void check_characters(const YAML::Mark& mark, std::string_view value, bool is_key);
  void split_key(Frame& frame, Node& value);
  void check_tag(const std::string& tag, const SourceLocation& location);
  bool is_part_of_list() const { return !open_.empty() && open_.back().node.kind == Node::Kind::list; }
  [[noreturn]] void stop(const SourceLocation& location, std::string what, std::string hint = {});

  std::shared_ptr<const Source> source_;
  std::vector<size_t> line_offsets_;
  Budget& budget_;
  Problems& problems_;
  std::vector<Frame> open_;
  std::map<YAML::anchor_t, Node> anchors_;
  Node root_;
};

}  // namespace gputrain::config
