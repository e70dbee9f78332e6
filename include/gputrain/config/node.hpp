// A YAML value with the place where it was written.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gputrain::config {

/// A source of text: a file, a --set, the environment, the defaults.
struct Source {
  enum class Kind { file, command_line, fallback };
  std::string name;  // the path as the user wrote it, "--set train.max_steps", or another origin
  std::string text;  // for excerpts in error messages
  Kind kind = Kind::file;
};

/// A place in a source. Line and column count characters from 1; line 0 means the whole source.
struct SourceLocation {
  std::shared_ptr<const Source> source = {};
  int line = 0;
  int column = 0;

  std::string to_string() const;  // "job.yaml:3:5", "--set train.max_steps", "default"
  bool is_default() const noexcept { return !source || source->kind == Source::Kind::fallback; }
};

/// One value. The parts of a map have keys.
struct Node {
  enum class Kind { null, scalar, list, map };

  Kind kind = Kind::null;
  bool quoted = false;       // scalar: always text
  bool removes = false;      // null: removes the value of a lower layer
  bool replaces = false;     // map: !replace, which drops the keys of a lower layer
  bool is_broken = false;    // its ${...} could not be resolved; already reported
  std::string text = {};     // scalar
  std::string written = {};  // the text before its ${...} were resolved; empty: it had none
  SourceLocation location = {};
  std::string key = {};  // if it is part of a map
  SourceLocation key_location = {};
  std::vector<Node> parts = {};  // children of a list or map, in order

  const Node* find(std::string_view name) const noexcept;  // the part with this key, or null
  Node* find(std::string_view name) noexcept;
};

/// Returns canonical YAML: two spaces of indentation, lists of scalars on one line, quotes only where needed. `comment`
/// may return a comment for the end of a leaf's line, given its dotted key.
std::string to_yaml(const Node& root, const std::function<std::string(const std::string& dotted)>& comment = {});

/// Returns the value on one line, such as `[1, 2]` or `{type: sgd, lr: 0.1}`.
std::string to_flow(const Node& node);

}  // namespace gputrain::config
