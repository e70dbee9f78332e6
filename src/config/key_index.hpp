// Every key a job can have, the options of every catalog entry included: for telling where a misplaced key belongs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gputrain/config/schema.hpp"

namespace gputrain::config {

struct KnownKey {
  std::string group;             // "optimizer", "model.config"; empty: the top
  const Key* key;
  const AnyCatalog* catalog;     // of which it is an option, or null
  const CatalogEntry* entry;

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
  /// Keys that another tool calls `name`, where `group` is the dotted place of the foreign key.
  std::vector<Renamed> renamed(std::string_view group, std::string_view name) const;

 private:
  void add_group(const Schema& schema, const std::string& group, const AnyCatalog* catalog, const CatalogEntry* entry,
                 int depth);

  std::vector<KnownKey> keys_;
};

/// "a.b", or "b" when the group is the top.
std::string join(std::string_view group, std::string_view name);

}  // namespace gputrain::config
