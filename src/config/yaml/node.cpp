#include "gputrain/config/node.hpp"

#include <algorithm>

#include "scalar.hpp"

namespace gputrain::config {
namespace {

bool is_block(const Node& node) {
  if (node.kind == Node::Kind::map) return !node.parts.empty();
  return node.kind == Node::Kind::list && std::any_of(node.parts.begin(), node.parts.end(),
                                                      [](const Node& part) { return part.kind == Node::Kind::map; });
}

std::string scalar_of(const Node& node) { return node.quoted ? scalar_text(node.text) : printable(node.text); }

class YamlWriter {
 public:
  explicit YamlWriter(const std::function<std::string(const std::string&)>& comment) : comment_(comment) {}

  void write(const Node& node, size_t indent, const std::string& dotted) {
    for (const Node& part : node.parts) {
      const std::string path = dotted.empty() ? part.key : dotted + "." + part.key;
      const bool is_item = node.kind == Node::Kind::list;
      text_ += std::string(indent, ' ') + (is_item ? "-" : scalar_text(part.key) + ":");
      if (is_block(part)) {
        text_ += "\n";
        write(part, indent + 2, is_item ? dotted : path);
      } else {
        text_ += " " + to_flow(part) + remark(is_item ? dotted : path) + "\n";
      }
    }
  }

  std::string take() { return std::move(text_); }

 private:
  std::string remark(const std::string& dotted) const {
    if (!comment_) return {};
    const std::string comment = comment_(dotted);
    return comment.empty() ? "" : "  # " + comment;
  }

  const std::function<std::string(const std::string&)>& comment_;
  std::string text_;
};

}  // namespace

std::string SourceLocation::to_string() const {
  if (is_default()) return "default";
  if (source->kind == Source::Kind::command_line || line == 0) return printable(source->name);
  return printable(source->name) + ":" + std::to_string(line) + ":" + std::to_string(column);
}

const Node* Node::find(std::string_view name) const noexcept {
  if (kind != Kind::map) return nullptr;
  const auto found = std::find_if(parts.begin(), parts.end(), [name](const Node& part) { return part.key == name; });
  return found == parts.end() ? nullptr : &*found;
}

Node* Node::find(std::string_view name) noexcept {
  return const_cast<Node*>(static_cast<const Node*>(this)->find(name));
}

std::string to_yaml(const Node& root, const std::function<std::string(const std::string& dotted)>& comment) {
  if (!is_block(root)) return to_flow(root) + "\n";
  YamlWriter writer(comment);
  writer.write(root, 0, {});
  return writer.take();
}

std::string to_flow(const Node& node) {
  if (node.kind == Node::Kind::null) return "null";
  if (node.kind == Node::Kind::scalar) return scalar_of(node);
  const bool is_map = node.kind == Node::Kind::map;
  std::string text = is_map ? "{" : "[";
  for (const Node& part : node.parts) {
    if (text.size() > 1) text += ", ";
    if (is_map) text += scalar_text(part.key) + ": ";
    text += to_flow(part);
  }
  return text + (is_map ? "}" : "]");
}

}  // namespace gputrain::config
