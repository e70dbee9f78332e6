#include "key_index.hpp"

#include <algorithm>
#include <charconv>

#include "gputrain/config/value_type.hpp"

namespace gputrain::config {
const Schema* group_inside(const ValueType& type) {
  if (type.kind == ValueType::Kind::group) return &type.schema();
  return type.kind == ValueType::Kind::optional ? group_inside(*type.inner) : nullptr;
}

const Schema* group_of_elements(const ValueType& type) {
  if (type.kind == ValueType::Kind::list) return group_of_elements(*type.inner);
  return type.kind == ValueType::Kind::group ? &type.schema() : nullptr;
}

const Key* key_of_text(const ValueType& type) {
  if (type.kind != ValueType::Kind::group) return nullptr;
  const Key* only = nullptr;
  for (const Key& key : type.schema().keys()) {
    if (!key.is_required()) continue;
    if (only != nullptr || key.type().kind != ValueType::Kind::string) return nullptr;
    only = &key;
  }
  return only;
}

std::string join(std::string_view group, std::string_view name) {
  std::string dotted(group);
  if (!dotted.empty()) dotted += '.';
  return dotted += name;
}

KeyIndex::KeyIndex(const Schema& root) { add_group(root, {}, 0); }

/// Returns an element of lists in lists by "[1][0]", which may be empty; null: there is none.
static const Node* element_of(const Node* node, std::string_view indices) {
  while (node != nullptr && !indices.empty()) {
    size_t index = 0;
    const char* end = std::from_chars(indices.data() + 1, indices.data() + indices.size(), index).ptr;
    indices.remove_prefix(static_cast<size_t>(end - indices.data()) + 1);
    const bool is_there = node->kind == Node::Kind::list && index < node->parts.size();
    node = is_there ? &node->parts[index] : nullptr;
  }
  return node;
}

const Node* find_dotted(const Node& root, std::string_view dotted) {
  const Node* node = &root;
  while (node != nullptr && !dotted.empty()) {
    const size_t dot = std::min(dotted.find('.'), dotted.size());
    const std::string_view part = dotted.substr(0, dot);
    const size_t name = std::min(part.ends_with(']') ? part.find('[') : part.size(), part.size());
    node = element_of(node->find(part.substr(0, name)), part.substr(name));
    dotted.remove_prefix(std::min(dot + 1, dotted.size()));
  }
  return node;
}

/// Adds the keys of a schema; `where` holds everything else about them.
void KeyIndex::add_group(const Schema& schema, const KnownKey& where, int depth) {
  if (depth > kDeepest) return;
  const std::shared_ptr<const void> defaults = schema.choices().empty() ? nullptr : schema.create();
  for (const Key& key : schema.keys()) {
    KnownKey known = where;
    known.key = &key;
    known.owner = &schema;
    keys_.push_back(known);
    if (const Schema* inner = group_inside(key.type())) {
      known.group = join(where.group, key.name());
      add_group(*inner, known, depth + 1);
    }
    const Schema::ChoiceKey* choice = schema.choice_of(key);
    if (choice == nullptr) continue;
    known.group = choice->under.empty() ? where.group : join(where.group, choice->under);
    known.catalog = choice->catalog;
    known.picked_by = join(where.group, key.name());
    for (const CatalogEntry& option : choice->catalog->entries()) {
      known.entry = &option;
      known.is_default =
          key.is_required() || static_cast<const Choice*>(key.locate(defaults.get()))->name == option.name;
      add_group(*option.schema, known, depth + 1);
    }
  }
}

std::vector<const KnownKey*> KeyIndex::named(std::string_view name) const {
  std::vector<const KnownKey*> found;
  for (const KnownKey& known : keys_) {
    if (known.key->name() == name) found.push_back(&known);
  }
  return found;
}

std::vector<KeyIndex::Renamed> KeyIndex::renamed(std::string_view group, std::string_view name) const {
  const std::string dotted = join(group, name);
  std::vector<Renamed> found;
  for (const KnownKey& known : keys_) {
    for (const Key::Foreign& foreign : known.key->foreign_names()) {
      if (dotted == foreign.name || dotted.ends_with("." + foreign.name)) found.push_back({&known, &foreign});
    }
  }
  return found;
}

}  // namespace gputrain::config
