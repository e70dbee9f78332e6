#include "interpolate.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "gputrain/config/names.hpp"
#include "yaml/scalar.hpp"
#include "yaml/source.hpp"
#include "yaml/write.hpp"

namespace gputrain::config {
namespace {

constexpr std::string_view kVariables = "vars";
constexpr std::string_view kEnvironmentPrefix = "env:";

/// Returns text from outside, with the type that YAML gives to unquoted text.
Node plain_node(std::string text) {
  Node node{.kind = Node::Kind::scalar, .quoted = text.empty(), .text = std::move(text)};
  if (!node.quoted && classify(node.text) == Plain::null) node.kind = Node::Kind::null;
  return node;
}

class Interpolation {
 public:
  Interpolation(Node& job, const Request& request, const Gaps& gaps, Budget& budget, Problems& problems)
      : job_(job), request_(request), gaps_(gaps), budget_(budget), problems_(problems) {}

  void resolve(Node& node) {
    for (Node& part : node.parts) resolve(part);
    if (node.kind == Node::Kind::scalar && node.text.find("${") != std::string::npos) resolve_scalar(node);
  }

 private:
  enum class State { busy, done };

  void resolve_scalar(Node& node) {
    const auto [state, is_new] = states_.emplace(&node, State::busy);
    if (!is_new) {
      if (state->second == State::busy) {
        fail(node, "${...} refers to itself here", "write one of the values in this circle without ${...}");
      }
      return;
    }
    Node resolved = node;  // the node keeps its ${...} meanwhile, and `states_` shows a circle
    resolved.written = node.text;
    resolved.text.clear();
    for (std::string_view rest = node.text; !rest.empty();) rest.remove_prefix(take_piece(rest, node.text, resolved));
    node = std::move(resolved);
    states_[&node] = State::done;
  }

  /// Appends the first piece of `rest` to the node's text. Returns its length in bytes in `rest`.
  size_t take_piece(std::string_view rest, std::string_view pattern, Node& node) {
    if (rest.starts_with("$${")) {
      node.text += "${";
      return 3;
    }
    if (!rest.starts_with("${")) {
      const size_t length = std::min(rest.size(), std::max<size_t>(1, rest.find('$')));
      node.text += rest.substr(0, length);
      return length;
    }
    const size_t end = rest.find('}');
    if (end == std::string_view::npos) {
      fail(node, "a ${ is never closed", "write ${name}, or $${ for the characters themselves");
      return rest.size();
    }
    const std::string_view reference = rest.substr(0, end + 1);
    const std::optional<Node> value = value_of(std::string(reference.substr(2, end - 2)), node);
    if (!value) return reference.size();
    if (reference == pattern) {  // the whole value: keeps its type
      node.kind = value->kind;
      node.quoted = value->quoted;
    } else if (value->kind == Node::Kind::null) {
      fail(node, shown(reference) + " is null, which cannot be part of a text");
    }
    node.is_broken = node.is_broken || value->is_broken;
    if (!may_spend(value->text.size(), node)) return rest.size();
    node.text += value->text;
    return reference.size();
  }

  /// Does not report a default: it can only fail through a user's value, which is reported at its own place.
  void fail(Node& node, std::string what, std::string hint = {}) {
    node.is_broken = true;
    if (!node.location.is_default()) problems_.add(node.location, std::move(what), std::move(hint));
  }

  bool may_spend(size_t bytes, Node& node) {
    if (bytes <= budget_.bytes) {
      budget_.bytes -= bytes;
      return true;
    }
    fail(node, "the job grows to more than 16 MiB of text here", "do nested ${...} multiply it?");
    budget_.bytes = 0;
    return false;
  }

  std::optional<Node> value_of(const std::string& name, Node& node) {
    if (std::string_view(name).starts_with(kEnvironmentPrefix)) return from_environment(name, node);
    Node* vars = job_.find(kVariables);
    Node* found = vars != nullptr ? vars->find(name) : nullptr;
    if (found == nullptr && name != kVariables) found = job_.find(name);
    if (found == nullptr) {
      unknown(name, node);
      return std::nullopt;
    }
    if (found->kind == Node::Kind::list || found->kind == Node::Kind::map) {
      fail(node, shown("${" + name + "}") + " names a list or a group of keys",
           "${...} can insert only a single value");
      return std::nullopt;
    }
    resolve(*found);
    return *found;
  }

  std::optional<Node> from_environment(const std::string& name, Node& node) {
    std::string variable = name.substr(kEnvironmentPrefix.size());
    std::optional<std::string> fallback;
    if (const size_t at = variable.find(":-"); at != std::string::npos) {
      fallback = variable.substr(at + 2);
      variable.resize(at);
    }
    if (fallback && fallback->find("${") != std::string::npos) {
      fail(node, "a ${...} inside the default of another ${...}", "name the default under `vars:` instead");
      return std::nullopt;
    }
    std::optional<std::string> value = request_.environment(variable);
    if (fallback && (!value || value->empty())) return plain_node(std::move(*fallback));
    if (!value) {
      fail(node, "the environment variable " + shown(variable) + " is not set",
           "set it, or give a default: ${env:" + printable(variable) + ":-value}");
      return std::nullopt;
    }
    const auto source = std::make_shared<Source>(Source{"the environment variable " + shown(variable), *value});
    Problems unclean;
    if (!is_clean(source, unclean)) {
      fail(node, source->name + " contains bytes that are not plain text");
      return std::nullopt;
    }
    return plain_node(std::move(*value));
  }

  void unknown(const std::string& name, Node& node) {
    if (gaps_.keys) {
      node.is_broken = true;
      return;
    }
    std::vector<std::string> names;
    if (const Node* vars = job_.find(kVariables)) {
      for (const Node& part : vars->parts) names.push_back(part.key);
    }
    for (const Node& part : job_.parts) {
      if (part.kind == Node::Kind::scalar) names.push_back(part.key);
    }
    std::string hint = did_you_mean(name, names);
    if (hint.empty() && request_.environment(name))
      hint = "for the environment variable write ${env:" + printable(name) + "}";
    if (hint.empty()) hint = "set it under `vars:`, or write $${ for the characters themselves";
    fail(node, "there is no value " + shown(name) + " for " + shown("${" + name + "}"), std::move(hint));
  }

  Node& job_;
  const Request& request_;
  const Gaps& gaps_;
  Budget& budget_;
  Problems& problems_;
  std::unordered_map<const Node*, State> states_;
};

/// Adds the top-level defaults to the tree, so that ${name} can read them and their own ${...} are resolved.
void add_defaults(Node& job, const Schema& schema) {
  const std::shared_ptr<void> defaults = schema.create();
  const Node written = node_of(schema, defaults.get());
  const auto source = std::make_shared<Source>(Source{"default", {}, Source::Kind::fallback});
  for (Node part : written.parts) {
    const Key* key = schema.find(part.key);
    if (part.kind != Node::Kind::scalar || job.find(part.key) != nullptr || !key || key->is_required()) continue;
    part.location = part.key_location = SourceLocation{source, 0, 0};
    job.parts.push_back(std::move(part));
  }
}

}  // namespace

void interpolate(Node& job, const Schema& schema, const Request& request, const Gaps& gaps, Budget& budget,
                 Problems& problems) {
  add_defaults(job, schema);
  Interpolation(job, request, gaps, budget, problems).resolve(job);
}

void escape_interpolation(Node& node) {
  for (size_t at = node.text.find("${"); at != std::string::npos; at = node.text.find("${", at + 3)) {
    node.text.insert(at, "$");
  }
  for (Node& part : node.parts) escape_interpolation(part);
}

}  // namespace gputrain::config
