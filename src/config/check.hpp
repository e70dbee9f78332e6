// Checks a tree against a schema: fills the struct and reports all problems.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gputrain/config/load.hpp"
#include "gputrain/config/node.hpp"
#include "gputrain/config/schema.hpp"
#include "gputrain/config/value_type.hpp"
#include "problems.hpp"
#include "unknown_key.hpp"

namespace gputrain::config {

class Checker {
 public:
  struct Reading {
    const Environment& environment;
    std::string record = {};  // the name of a file whose unknown keys are no mistakes; empty: there is none
    Gaps gaps = {};
    bool advises = true;  // on unknown keys; false: they are only counted
  };
  Checker(const Schema& schema, const Node& job, Reading reading, Problems& problems);

  /// Returns the filled struct; valid only if no problem was reported.
  std::shared_ptr<void> run();

  /// Reads a key's default as if the user had written it.
  void read_default(const Key& key, const Node& node, void* spec) {
    read_value({key, key.name(), key.type()}, key.type(), node, key.locate(spec));
  }

  /// Reads the value of a key of `owner` as if the job had it in `group`.
  void try_out(const Schema& owner, const Key& key, const Node& value, const std::string& group);

  /// Returns the origin of each setting, by dotted key.
  std::map<std::string, SourceLocation> take_origins() { return std::move(origins_); }
  std::vector<std::string> take_left_out() { return std::move(left_out_); }

 private:
  /// A map of the job while its keys are being read.
  struct Group {
    const Node* map;  // null: not given
    std::string dotted;
    SourceLocation location;                        // where missing keys are reported
    std::set<std::string, std::less<>> known = {};  // keys that are valid here
    std::vector<Picked> picked = {};
    bool guesses = false;  // the name of a choice is invalid: unknown keys may be its options
  };

  /// The place of a value: its key, its full name, and the type that messages name.
  struct Slot {
    const Key& key;
    std::string dotted;
    const ValueType& shown;
  };

  /// A struct whose keys are valid one by one; its own check runs after all keys are read.
  struct PendingCheck {
    const Schema* schema;
    std::string dotted;
    const void* spec;
  };

  void read_group(const Schema& schema, Group group, void* spec);
  void read_keys(const Schema& schema, Group& group, void* spec);
  void read_key(const Key& key, Group& group, void* spec);
  void read_absent(const Key& key, const Group& group, const Node* removed, void* spec);
  void read_pattern(const Key& key, Group& group, void* spec);
  void note_unknown(const Group& group);
  bool is_recorded(const Node& part) const;
  void run_check(const PendingCheck& check);

  void read_choice(const Schema::ChoiceKey& choice, const Key& key, Group& group, void* spec);
  void refuse_options_of_no_entry(const Schema::ChoiceKey& choice, const Key& key, const Group& group);
  const CatalogEntry* pick(const Schema::ChoiceKey& choice, const Key& key, Group& group, const std::string& fallback);
  void read_options(const Schema::ChoiceKey& choice, const CatalogEntry* entry, Group& group, void* options);
  std::optional<Node> with_inherited(const Schema& schema, const Node* map) const;

  void read_value(const Slot& slot, const ValueType& type, const Node& node, void* target);
  void read_list(const Slot& slot, const ValueType& type, const Node& node, void* target);
  void read_map(const Slot& slot, const ValueType& type, const Node& node, void* target);
  void read_scalar(const Slot& slot, const ValueType& type, const Node& node, void* target);
  void read_string(const Slot& slot, const Node& node, std::string& target);
  void read_path(const Slot& slot, const Node& node, std::string& target);
  template <class T, class Parse>
  void read_parsed(const Slot& slot, const Node& node, Parse parse, T& target);
  void check_limits(const Slot& slot, const Node& node, double value);
  void wrong_type(const Slot& slot, const Node& node, std::string hint = {});

  SourceLocation location_of(const std::string& dotted) const;

  const Schema& schema_;
  const Node& job_;
  Reading reading_;
  Problems& problems_;
  UnknownKeys unknown_keys_;
  std::map<std::string, SourceLocation> origins_;  // of values; of a group by its key and a dot
  std::vector<PendingCheck> pending_checks_;
  std::vector<std::string> left_out_;  // unknown keys of the record
  bool misses_values_ = false;
};

}  // namespace gputrain::config
