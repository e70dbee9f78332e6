#include "key_index.hpp"

#include "gputrain/config/value_type.hpp"

namespace gputrain::config {
namespace {

constexpr int kDeepest = 8;  // a described struct may hold a list of itself

/// The struct inside `type`, looking through null and `auto`; null when there is none.
const Schema* group_inside(const ValueType& type) {
  const ValueType* inner = &type;
  while (inner->kind == ValueType::Kind::optional || inner->kind == ValueType::Kind::automatic) inner = inner->inner;
  return inner->kind == ValueType::Kind::group ? &inner->schema() : nullptr;
}

}  // namespace

std::string join(std::string_view group, std::string_view name) {
  std::string dotted(group);
  if (!dotted.empty()) dotted += '.';
  return dotted += name;
}

KeyIndex::KeyIndex(const Schema& root) { add_group(root, {}, nullptr, nullptr, 0); }

void KeyIndex::add_group(const Schema& schema, const std::string& group, const AnyCatalog* catalog,
                         const CatalogEntry* entry, int depth) {
  if (depth > kDeepest) return;
  for (const Key& key : schema.keys()) {
    keys_.push_back({group, &key, catalog, entry});
    if (const Schema* inner = group_inside(key.type())) {
      add_group(*inner, join(group, key.name()), catalog, entry, depth + 1);
    }
    const Schema::ChoiceKey* choice = schema.choice_of(key);
    if (choice == nullptr) continue;
    const std::string place = choice->under.empty() ? group : join(group, choice->under);
    for (const CatalogEntry& option : choice->catalog->entries()) {
      add_group(*option.schema, place, choice->catalog, &option, depth + 1);
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
