// The type-erased form of described structs, which the reader, `gputrain schema` and `gputrain describe` use.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gputrain/config/value_types.hpp"

namespace gputrain::config {

class AnyCatalog;
class Schema;
struct Node;
struct ValueType;  // how to read and write one C++ type as YAML; see value_type.hpp

/// The answer to another value for a key in a resumed job: accepted, accepted only with --accept, or refused.
enum class Change { safe, needs_accept, refused };

/// Returns the ValueType of a C++ type, for the types that describe.hpp lists.
template <class T>
const ValueType& type_of();

/// Returns the schema of a described struct; built once.
template <class Spec>
const Schema& schema_of();

/// A picked catalog entry with its options. A member's initializer may name a default entry (`Choice rule{"adamw"}`);
/// the options then have the defaults of that entry's spec.
struct Choice {
  std::string name = {};                     // empty: nothing picked (only possible without a default entry)
  std::shared_ptr<const void> options = {};  // the entry's spec struct; null if nothing is picked

  template <class Spec>
  const Spec& as() const {
    return *static_cast<const Spec*>(options.get());
  }
};

/// One key of the job: name, help, type, limits, and names that other tools use for it.
class Key {
 public:
  using Locate = std::function<void*(void* spec)>;  // address of the member in a spec struct

  Key(std::string name, std::string help, const ValueType& type, Locate locate);

  // Limits apply to the number inside `auto`, null or a list too. For lengths and durations they apply to the bare
  // number.
  Key& range(double low, double high);     // closed interval
  Key& above(double low);                  // open below: value > low
  Key& below(double high);                 // open above: value < high
  Key& at_least(double low);               // value >= low
  Key& elements(size_t low, size_t high);  // of a list
  Key& elements(size_t count) { return elements(count, count); }
  Key& choices(std::vector<std::string> allowed);  // for strings and lists of strings
  Key& units(std::vector<Length::Unit> allowed);   // for lengths; default: all
  Key& required();                                 // must be given
  Key& change(Change change);                      // default: that of the enclosing group; at the top `refused`
  Key& aliases(std::vector<std::string> foreign);  // other tools' names for this key
  /// Converts another tool's value to ours ("10%" for a ratio of 0.1); empty: leave the line out.
  using Convert = std::function<std::string(const std::string& value)>;
  Key& aliases(std::string foreign, Convert convert);
  Key& alias_flag(std::string foreign, std::string value);  // `bf16: true` stands for `precision: bf16`
  Key& path();                                              // `~` and `$HOME` at the beginning mean the home folder
  /// Masks secrets as *** in all output: in a map, values whose names are those of secrets (core/secrets.hpp); an
  /// optional text as a whole.
  Key& mask_secrets();
  Key& unit(std::string unit);  // shown in help: "samples", "seconds"
  /// Takes a missing name and missing options of a choice from the choice at this dotted key (`data.val.format` from
  /// `data.train.format`).
  Key& inherits(std::string dotted);
  /// Returns the same key of a struct that holds this key's struct; `find` gives the address of the inner struct.
  Key within(Locate find) const;

  const std::string& name() const noexcept { return name_; }
  const std::string& help() const noexcept { return help_; }
  const std::string& unit() const noexcept { return unit_; }
  const ValueType& type() const noexcept { return *type_; }
  bool is_required() const noexcept { return required_; }
  bool masks_secrets() const noexcept { return masks_secrets_; }
  bool is_path() const noexcept { return is_path_; }
  std::optional<Change> change() const noexcept { return change_; }
  const std::vector<std::string>& allowed() const noexcept { return allowed_; }
  const std::vector<Length::Unit>& allowed_units() const noexcept { return allowed_units_; }
  const std::string& inherited_from() const noexcept { return inherited_from_; }

  struct Foreign {
    std::string name;  // "learning_rate", or with parents: "auto_scale_lr.base_batch_size"
    Convert convert;   // empty: keep the value
  };
  const std::vector<Foreign>& foreign_names() const noexcept { return foreign_; }

  struct Limits {
    std::optional<double> low, high;
    bool low_is_open = false, high_is_open = false;
    std::optional<size_t> fewest, most;  // elements of a list
  };
  const Limits& limits() const noexcept { return limits_; }

  void* locate(void* spec) const { return locate_(spec); }
  const void* locate(const void* spec) const { return locate_(const_cast<void*>(spec)); }

 private:
  std::string name_, help_, unit_, inherited_from_;
  const ValueType* type_;
  Locate locate_;
  Limits limits_;
  std::vector<std::string> allowed_;
  std::vector<Length::Unit> allowed_units_;
  std::vector<Foreign> foreign_;
  bool required_ = false, masks_secrets_ = false, is_path_ = false;
  std::optional<Change> change_;
};

/// Collects the findings of a struct's own check; see Description::check.
class SpecIssues {
 public:
  struct Issue {
    std::string key;   // dotted, relative to the checked struct: "data.train.path"; empty: the struct
    std::string what;  // the fact, without a final full stop
    std::string hint;  // what to try; may be empty
  };

  void add(std::string key, std::string what, std::string hint = {});
  const std::vector<Issue>& all() const noexcept { return issues_; }

 private:
  std::vector<Issue> issues_;
};

/// The keys of one struct, in declaration order.
class Schema {
 public:
  using Create = std::function<std::shared_ptr<void>()>;  // a default-constructed struct
  using Check = std::function<void(const void* spec, SpecIssues& issues)>;

  explicit Schema(Create create);

  void set_summary(std::string text);
  void set_check(Check check);
  void set_part() { is_part_ = true; }
  /// What to write instead of a key of another tool.
  struct Instead {
    std::vector<std::pair<std::string, std::string>> settings;  // dotted keys and their values as YAML
    std::string why = {};                                       // reason why it needs no line
  };
  /// Returns nothing if no tool has the key.
  using Foreign = std::function<std::optional<Instead>(const std::string& dotted, const Node& value)>;
  void set_foreign(Foreign foreign) { foreign_ = std::move(foreign); }
  Key& add(Key key);
  Key& add_choice(Key key, const AnyCatalog& catalog, std::string under);
  Key& add_pattern(Key key);

  struct ChoiceKey {
    size_t key;  // index into keys()
    const AnyCatalog* catalog;
    std::string under;  // the map with the entry's options; empty: beside the key
  };

  const std::string& summary() const noexcept { return summary_; }
  const std::vector<Key>& keys() const noexcept { return keys_; }
  const std::vector<ChoiceKey>& choices() const noexcept { return choices_; }
  const ChoiceKey* choice_of(const Key& key) const noexcept;  // null: not a choice of this schema
  const Key* find(std::string_view name) const noexcept;
  const Key* pattern() const noexcept { return pattern_ ? &*pattern_ : nullptr; }  // the map for keys with a '/'
  const Check& check() const noexcept { return check_; }
  const Foreign& foreign() const noexcept { return foreign_; }
  bool is_part() const noexcept { return is_part_; }  // other code reads the other keys
  std::shared_ptr<void> create() const { return create_(); }

 private:
  Create create_;
  Check check_;
  Foreign foreign_;
  std::string summary_;
  std::vector<Key> keys_;
  std::vector<ChoiceKey> choices_;
  std::optional<Key> pattern_;
  bool is_part_ = false;
};

struct CatalogEntry {
  std::string name;
  std::string help;
  const Schema* schema;
  std::string location = {};  // "file:line" of its registration
};

/// Notes a mistake. Registration runs before main(), where errors cannot be reported, so refuse_wrong_registrations()
/// reports them later.
void note_wrong_registration(const std::string& what);
/// Throws Error(environment) if the program contains a wrong registration.
void refuse_wrong_registrations();

/// The entries a key can pick from, without the code that builds them.
class AnyCatalog {
 public:
  explicit AnyCatalog(std::string kind);
  AnyCatalog(const AnyCatalog&) = delete;
  AnyCatalog& operator=(const AnyCatalog&) = delete;
  virtual ~AnyCatalog();

  const std::string& kind() const noexcept { return kind_; }  // "model", "dataset", "optimizer"
  const std::vector<CatalogEntry>& entries() const noexcept { return entries_; }
  const CatalogEntry* find(std::string_view name) const noexcept;  // null: no such entry
  std::vector<std::string> names() const;                          // sorted
  std::string entries_in_words() const;                            // "adamw: what it is; sgd: ...", sorted
  Choice with_defaults(const std::string& name) const;             // the entry, which must exist

 protected:
  void add_entry(CatalogEntry entry);
  size_t index_of(std::string_view name) const;

 private:
  std::string kind_;
  std::vector<CatalogEntry> entries_;
};

}  // namespace gputrain::config
