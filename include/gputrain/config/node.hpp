// A YAML value that knows where it was written.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gputrain::config {

/// Something that text comes from: a file, a --set, the environment, our own defaults.
struct Source {
  enum class Kind { file, command_line, fallback };
  std::string name;  // the path as the user wrote it, or "--set train.max_steps", or where else a setting is from
  std::string text;  // for excerpts
  Kind kind = Kind::file;
};

/// A place in a source; line and column count characters from 1, line 0 means the source as a whole.
struct Place {
  std::shared_ptr<const Source> source = {};
  int line = 0;
  int column = 0;

  std::string to_string() const;  // "job.yaml:3:5", "--set train.max_steps", "default"
  bool is_default() const noexcept { return !source || source->kind == Source::Kind::fallback; }
};

/// One value; the parts of a map carry their key.
struct Node {
  enum class Kind { null, scalar, list, map };

  Kind kind = Kind::null;
  bool quoted = false;     // scalar: text whatever it looks like
  bool removes = false;    // null: took the place of a value from a lower layer
  bool is_broken = false;  // its ${...} could not be resolved, which has been reported
  std::string text = {};   // scalar
  Place place = {};
  std::string key = {};  // when it is part of a map
  Place key_place = {};
  std::vector<Node> parts = {};  // of a list or map, in order

  const Node* find(std::string_view name) const noexcept;  // the part with that key, or null
  Node* find(std::string_view name) noexcept;
};

/// Canonical YAML: two spaces of indentation, lists of scalars on one line, text quoted only where it must be.
/// `comment` may give each leaf, by its dotted key, a remark at the end of its line.
std::string to_yaml(const Node& root, const std::function<std::string(const std::string& dotted)>& comment = {});

/// The value on one line, as in `[1, 2]` or `{type: sgd, lr: 0.1}`.
std::string to_flow(const Node& node);

}  // namespace gputrain::config
