#include "write.hpp"

#include <utility>

#include "../interpolate.hpp"
#include "../key_index.hpp"
#include "gputrain/config/value_type.hpp"
#include "gputrain/core/secrets.hpp"
#include "scalar.hpp"

namespace gputrain::config {
namespace {

using Kind = ValueType::Kind;

Node bare(std::string text) { return {.kind = Node::Kind::scalar, .text = std::move(text)}; }
Node text_node(const std::string& text) {
  return {.kind = Node::Kind::scalar, .quoted = true, .text = without_url_secrets(text)};
}

class Writer {
 public:
  explicit Writer(std::vector<Setting>* settings) : settings_(settings) {}

  Node group(const Schema& schema, const void* spec, const std::string& dotted, Change change) {
    Node map{.kind = Node::Kind::map};
    add_keys(map, schema, spec, dotted, change);
    return map;
  }

  Node value(const ValueType& type, const void* value, const std::string& dotted, Change change) {
    switch (type.kind) {
      case Kind::boolean:
        return leaf(bare(*static_cast<const bool*>(value) ? "true" : "false"), dotted, change);
      case Kind::integer:
        return leaf(bare(std::to_string(*static_cast<const int64_t*>(value))), dotted, change);
      case Kind::number:
        return leaf(bare(number_text(*static_cast<const double*>(value))), dotted, change);
      case Kind::string:
        return leaf(text_node(*static_cast<const std::string*>(value)), dotted, change);
      case Kind::length:
        return leaf(bare(to_string(*static_cast<const Length*>(value))), dotted, change);
      case Kind::duration:
        return leaf(bare(to_string(*static_cast<const Duration*>(value))), dotted, change);
      case Kind::choice:
        return leaf(name_of(*static_cast<const Choice*>(value)), dotted, change);
      case Kind::group:
        return group(type.schema(), value, dotted, change);
      case Kind::automatic:
      case Kind::optional:
        return held(type, value, dotted, change);
      case Kind::list:
        return list(type, value, dotted, change);
      case Kind::map:
        return map(type, value, dotted, change);
    }
    return {};
  }

 private:
  void add_keys(Node& map, const Schema& schema, const void* spec, const std::string& dotted, Change change) {
    for (const Key& key : schema.keys()) {
      const Change own = key.change().value_or(change);
      masks_secrets_ = key.masks_secrets();
      add(map, key.name(), value(key.type(), key.locate(spec), join(dotted, key.name()), own));
      masks_secrets_ = false;
      if (const Schema::ChoiceKey* choice = schema.choice_of(key)) add_options(map, *choice, key, spec, dotted, own);
    }
    if (const Key* pattern = schema.pattern()) {
      pattern->type().each(pattern->locate(spec), [&](const std::string& name, const void* part) {
        const Change own = pattern->change().value_or(change);
        add(map, name, value(*pattern->type().inner, part, join(dotted, name), own));
      });
    }
  }

  void add_options(Node& map, const Schema::ChoiceKey& choice, const Key& key, const void* spec,
                   const std::string& dotted, Change change) {
    const auto& picked = *static_cast<const Choice*>(key.locate(spec));
    const CatalogEntry* entry = choice.catalog->find(picked.name);
    if (entry == nullptr) return;
    const std::shared_ptr<const void> options = picked.options ? picked.options : entry->schema->create();
    if (choice.under.empty()) {
      add_keys(map, *entry->schema, options.get(), dotted, change);
      return;
    }
    Node under = group(*entry->schema, options.get(), join(dotted, choice.under), change);
    if (!under.parts.empty()) add(map, choice.under, std::move(under));
  }

  static void add(Node& map, const std::string& key, Node part) {
    part.key = key;
    map.parts.push_back(std::move(part));
  }

  static Node name_of(const Choice& choice) { return choice.name.empty() ? Node{} : text_node(choice.name); }

  Node held(const ValueType& type, const void* holder, const std::string& dotted, Change change) {
    Node node;
    bool is_empty = true;
    type.each(holder, [&](const std::string&, const void* part) {
      is_empty = false;
      const bool is_masked = masks_secrets_ && type.inner->kind == Kind::string;
      node = is_masked ? leaf(text_node("***"), dotted, change) : value(*type.inner, part, dotted, change);
    });
    if (!is_empty) return node;
    return leaf(type.kind == Kind::automatic ? bare("auto") : Node{}, dotted, change);
  }

  Node list(const ValueType& type, const void* holder, const std::string& dotted, Change change) {
    Node node{.kind = Node::Kind::list};
    Writer parts(nullptr);  // a list is one setting
    const bool is_masked = masks_secrets_ && type.inner->kind == Kind::string;
    type.each(holder, [&](const std::string&, const void* part) {  // for a command, the program's name is shown
      node.parts.push_back(is_masked && !node.parts.empty() ? text_node("***")
                                                            : parts.value(*type.inner, part, dotted, change));
    });
    if (type.takes_one && node.parts.size() == 1) node = Node(node.parts.front());
    return leaf(std::move(node), dotted, change);
  }

  Node map(const ValueType& type, const void* holder, const std::string& dotted, Change change) {
    Node node{.kind = Node::Kind::map};
    type.each(holder, [&](const std::string& key, const void* part) {
      const bool is_masked = masks_secrets_ && is_secret_name(key);
      add(node, key,
          is_masked ? leaf(text_node("***"), join(dotted, key), change)
                    : value(*type.inner, part, join(dotted, key), change));
    });
    return node;
  }

  Node leaf(Node node, const std::string& dotted, Change change) {
    if (settings_ != nullptr) settings_->push_back({dotted, to_flow(node), change});
    return node;
  }

  std::vector<Setting>* settings_;
  bool masks_secrets_ = false;
};

}  // namespace

Node node_of(const Schema& schema, const void* spec) {
  return Writer(nullptr).group(schema, spec, {}, Change::refused);
}

Node node_of(const ValueType& type, const void* value) {
  return Writer(nullptr).value(type, value, {}, Change::refused);
}

std::vector<Setting> settings_of(const Schema& schema, const void* spec) {
  std::vector<Setting> settings;
  Writer(&settings).group(schema, spec, {}, Change::refused);
  return settings;
}

std::string to_yaml(const Schema& schema, const void* spec) {
  Node root = node_of(schema, spec);
  escape_interpolation(root);
  return to_yaml(root);
}

}  // namespace gputrain::config
