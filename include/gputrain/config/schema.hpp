// The type-erased form of described structs: what the reader, `gputrain schema` and `gputrain describe` walk over.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/config/value_types.hpp"
#include "gputrain/core/export.hpp"

namespace gputrain::config {

class AnyCatalog;
class Schema;
class ValueType;  // how one C++ type is read from YAML and written back; see value_type.hpp

/// What happens when a resumed job has another value for a key: taken silently, only with --accept, or never.
enum class Change { safe, needs_accept, refused };

/// The value type of a C++ type; specialised for the types that describe.hpp lists.
template <class T>
const ValueType& type_of();
const ValueType& choice_type(const AnyCatalog& catalog);

/// The entry of a catalog that a job picked, with its options.
struct Choice {
  std::string name;                     // empty: nothing picked (only where the key is optional)
  std::shared_ptr<const void> options;  // the entry's spec struct

  template <class Spec>
  const Spec& as() const { return *static_cast<const Spec*>(options.get()); }
};

/// One key of the job: name, help, type, limits, and the foreign names it stands for.
class GPUTRAIN_API Key {
 public:
  using Locate = std::function<void*(void* spec)>;  // the member inside a spec struct

  Key(std::string name, std::string help, const ValueType& type, Locate locate);

  Key& range(double low, double high);                  // closed interval
  Key& above(double low);                               // open below: value > low
  Key& at_least(double low);                            // value >= low
  Key& choices(std::vector<std::string> allowed);       // for strings and lists of strings
  Key& required();                                      // must be given
  Key& change(Change change);                           // default: refused
  Key& instead_of(std::vector<std::string> foreign);    // other tools' names for this key
  Key& unit(std::string unit);                          // shown in help: "samples", "seconds"

  const std::string& name() const noexcept { return name_; }
  const std::string& help() const noexcept { return help_; }
  const std::string& unit() const noexcept { return unit_; }
  const ValueType& type() const noexcept { return *type_; }
  bool is_required() const noexcept { return required_; }
  Change change() const noexcept { return change_; }
  const std::vector<std::string>& foreign_names() const noexcept { return foreign_; }
  const std::vector<std::string>& allowed() const noexcept { return allowed_; }

  struct Limits {
    std::optional<double> low, high;
    bool low_is_open = false;
  };
  const Limits& limits() const noexcept { return limits_; }

  void* locate(void* spec) const { return locate_(spec); }

 private:
  std::string name_, help_, unit_;
  const ValueType* type_;
  Locate locate_;
  Limits limits_;
  std::vector<std::string> allowed_, foreign_;
  bool required_ = false;
  Change change_ = Change::refused;
};

/// The keys of one struct, in declaration order.
class GPUTRAIN_API Schema {
 public:
  using Create = std::function<std::shared_ptr<void>()>;  // a default-constructed struct

  explicit Schema(Create create);

  void set_summary(std::string text);
  Key& add(Key key);
  Key& add_choice(Key key, const AnyCatalog& catalog, std::string under);

  struct ChoiceKey {
    size_t key;                 // index into keys()
    const AnyCatalog* catalog;
    std::string under;          // the map that holds the entry's options; empty: beside the key
  };

  const std::string& summary() const noexcept { return summary_; }
  const std::vector<Key>& keys() const noexcept { return keys_; }
  const std::vector<ChoiceKey>& choices() const noexcept { return choices_; }
  std::shared_ptr<void> create() const { return create_(); }

 private:
  Create create_;
  std::string summary_;
  std::vector<Key> keys_;
  std::vector<ChoiceKey> choices_;
};

struct CatalogEntry {
  std::string name;
  std::string help;
  const Schema* schema;
};

/// The names a key can pick from, without what they build.
class GPUTRAIN_API AnyCatalog {
 public:
  explicit AnyCatalog(std::string kind);
  AnyCatalog(const AnyCatalog&) = delete;
  AnyCatalog& operator=(const AnyCatalog&) = delete;
  virtual ~AnyCatalog();

  const std::string& kind() const noexcept { return kind_; }               // "model", "dataset", "optimizer"
  const std::vector<CatalogEntry>& entries() const noexcept { return entries_; }
  const CatalogEntry* find(std::string_view name) const noexcept;          // nullptr: no such entry

 protected:
  void add_entry(CatalogEntry entry);
  size_t index_of(std::string_view name) const;

 private:
  std::string kind_;
  std::vector<CatalogEntry> entries_;
};

}  // namespace gputrain::config
