// Describes keys that are options of entries: by full names, by last names, and by those that other programs give them.
#include <algorithm>
#include <map>
#include <utility>

#include "gputrain/config/reference.hpp"
#include "gputrain/config/value_type.hpp"
#include "gputrain/core/wrap.hpp"
#include "key_index.hpp"

namespace gputrain::config {
namespace {

/// The options of an entry, and what stands before their names in a job: "model.config.".
struct Options {
  std::string prefix;
  const AnyCatalog* catalog;
  const CatalogEntry* entry;
};

/// Adds the options of all entries that keys of a schema pick, also those within lists and within other entries.
void add_options(const Schema& schema, const std::string& prefix, std::vector<Options>& found, int depth = 0) {
  if (depth > kDeepest) return;
  for (const Key& key : schema.keys()) {
    if (const Schema* group = group_inside(key.type()))
      add_options(*group, prefix + key.name() + ".", found, depth + 1);
    else if (const Schema* elements = group_of_elements(key.type()))
      add_options(*elements, prefix + key.name() + "[].", found, depth + 1);
    const Schema::ChoiceKey* choice = schema.choice_of(key);
    if (choice == nullptr) continue;
    const std::string inside = prefix + (choice->under.empty() ? "" : choice->under + ".");
    for (const std::string& name : choice->catalog->names()) {
      const CatalogEntry* entry = choice->catalog->find(name);
      found.push_back({inside, choice->catalog, entry});
      add_options(*entry->schema, inside, found, depth + 1);
    }
  }
}

/// Describes an option of entries by its full name, once for all entries whose options are the same.
std::string describe_option(const Schema& root, std::string_view name, size_t width) {
  std::vector<Options> all;
  add_options(root, {}, all);
  std::vector<std::pair<std::string, std::string>> found;  // tables, and the entries that have them
  for (const auto& [prefix, catalog, entry] : all) {
    if (!name.starts_with(prefix)) continue;
    const std::string table = describe_text(*entry->schema, width, name.substr(prefix.size()));
    if (table.empty()) continue;
    const auto same = std::ranges::find(found, table, [](const auto& one) { return one.first; });
    if (same != found.end())
      same->second += ", " + entry->name;
    else
      found.emplace_back(table, catalog->kind() + " " + entry->name);
  }
  std::string text;
  for (const auto& [table, entries] : found)
    text += (text.empty() ? "" : "\n") + wrapped("`" + std::string(name) + "`, of " + entries + ":", width, 0) + "\n" +
            table;
  return text;
}

}  // namespace

std::string describe_name(const Schema& root, std::string_view name, size_t width) {
  struct Found {
    std::string key;
    bool is_ours;
    std::map<std::string, const KnownKey*> of_entries;  // by name; entries are in any order in their catalog
  };
  std::vector<Found> found;
  const auto add = [&](const KnownKey& known, bool is_ours) {
    auto place = std::ranges::find(found, known.dotted(), &Found::key);
    if (place == found.end()) place = found.insert(found.end(), {known.dotted(), is_ours, {}});
    if (known.entry != nullptr) place->of_entries.emplace(known.entry->name, &known);
  };
  const KeyIndex index(root);
  for (const KnownKey* known : index.named(name)) add(*known, /*is_ours=*/true);
  for (const auto& [known, foreign] : index.renamed("", name)) add(*known, /*is_ours=*/false);
  std::string text;
  for (const auto& [key, is_ours, of_entries] : found) {
    std::string entries;
    for (const auto& [entry, known] : of_entries)
      entries += (entries.empty() ? ", of " + known->catalog->kind() + " " : ", ") + entry;
    const std::string head = (is_ours ? "`" : "`" + std::string(name) + "` of other programs is `") + key + "`";
    const KnownKey* const first = of_entries.empty() ? nullptr : of_entries.begin()->second;
    text += (text.empty() ? "" : "\n") + wrapped(head + entries + ":", width, 0) + "\n" +
            (first != nullptr ? describe_text(*first->entry->schema, width, first->key->name())
                              : describe_text(root, width, key));
  }
  return text.empty() ? describe_option(root, name, width) : text;
}

}  // namespace gputrain::config
