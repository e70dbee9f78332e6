// An index of all keys a job can have, including the options of all catalog entries, to place a misplaced key.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gputrain/config/node.hpp"
#include "gputrain/config/schema.hpp"

namespace gputrain::config {

struct KnownKey {
  std::string group = {};  // "optimizer", "model.config"; empty: the top
  const Key* key = nullptr;
  const Schema* owner = nullptr;        // the struct that has the key
  const AnyCatalog* catalog = nullptr;  // if the key is an option of one of its entries
  const CatalogEntry* entry = nullptr;
  std::string picked_by = {};  // the key that picks the entry: "model.type"
  bool is_default = false;     // the entry may be picked if the job does not say

  std::string dotted() const { return group.empty() ? key->name() : group + "." + key->name(); }
};

class KeyIndex {
 public:
  explicit KeyIndex(const Schema& root);

  const std::vector<KnownKey>& all() const noexcept { return keys_; }
  std::vector<const KnownKey*> named(std::string_view name) const;

  struct Renamed {
    const KnownKey* known;
    const Key::Foreign* foreign;
  };
  /// Returns keys that other tools call `name`; `group` is the dotted group of the foreign key.
  std::vector<Renamed> renamed(std::string_view group, std::string_view name) const;

 private:
  void add_group(const Schema& schema, const KnownKey& where, int depth);

  std::vector<KnownKey> keys_;
};

inline constexpr int kDeepest = 8;  // groups within each other: an entry may have a choice of its own catalog

/// Returns the node at a dotted key, "alerts[1].metric" in a list, or null.
const Node* find_dotted(const Node& root, std::string_view dotted);

/// Returns the struct inside `type` (group or optional group), or null.
const Schema* group_inside(const ValueType& type);

/// Returns the struct of the elements of a list of groups, or of lists of them; that of a group itself; or null.
const Schema* group_of_elements(const ValueType& type);

/// The key whose value may stand for a group that is one element of a OneOrMore: the only one that must be given, if it
/// is a text. Null: there is none.
const Key* key_of_text(const ValueType& type);

/// Returns "a.b", or "b" if the group is empty.
std::string join(std::string_view group, std::string_view name);

}  // namespace gputrain::config
