#include <algorithm>
#include <set>

#include "check.hpp"
#include "gputrain/config/reference.hpp"
#include "gputrain/config/value_type.hpp"
#include "key_index.hpp"
#include "yaml/write.hpp"

namespace gputrain::config {
namespace {

using Kind = ValueType::Kind;

/// Returns the type of the values inside null, auto, lists and maps.
const ValueType& innermost(const ValueType& type) { return type.inner == nullptr ? type : innermost(*type.inner); }

bool is_list(const ValueType& type) {
  return type.kind == Kind::list ||
         ((type.kind == Kind::optional || type.kind == Kind::automatic) && is_list(*type.inner));
}

bool is_numeric(Kind kind) {
  return kind == Kind::integer || kind == Kind::number || kind == Kind::length || kind == Kind::duration;
}

class Inspector {
 public:
  explicit Inspector(const Schema& root) : root_(root) {}

  std::vector<std::string> inspect() {
    inspect_group(root_, "job");
    return std::move(faults_);
  }

 private:
  void fault(const std::string& location, const std::string& what) { faults_.push_back(location + ": " + what); }

  void inspect_group(const Schema& schema, const std::string& location) {
    if (!seen_.insert(&schema).second) return;
    const std::shared_ptr<void> defaults = schema.create();
    for (const Key& key : schema.keys()) {
      const std::string dotted = join(location, key.name());
      inspect_key(schema, key, dotted);
      inspect_default(key, defaults.get(), dotted);
      const ValueType& inner = innermost(key.type());
      if (inner.kind == Kind::group) inspect_group(inner.schema(), dotted);
    }
    for (const Schema::ChoiceKey& choice : schema.choices()) inspect_choice(schema, choice, defaults.get(), location);
  }

  void inspect_key(const Schema& schema, const Key& key, const std::string& dotted) {
    const Kind kind = innermost(key.type()).kind;
    const Key::Limits& limits = key.limits();
    if (key.help().empty()) fault(dotted, "has no help");
    if ((limits.low || limits.high) && !is_numeric(kind)) fault(dotted, "has a range but is no number");
    if ((limits.fewest || limits.most) && !is_list(key.type())) fault(dotted, "counts elements but is no list");
    if (!key.allowed().empty() && kind != Kind::string) fault(dotted, "lists allowed texts but is no text");
    if (!key.allowed_units().empty() && kind != Kind::length) fault(dotted, "lists units but is no length");
    if (!key.inherited_from().empty() && kind != Kind::choice) fault(dotted, "inherits but is no choice");
    for (const Key::Foreign& foreign : key.foreign_names()) {
      if (schema.find(foreign.name) != nullptr) fault(dotted, "foreign name '" + foreign.name + "' is a key beside it");
      for (const Key& other : schema.keys()) {
        const auto& names = other.foreign_names();
        const bool shares =
            std::any_of(names.begin(), names.end(), [&](const auto& name) { return name.name == foreign.name; });
        if (&other != &key && shares)
          fault(dotted, "foreign name '" + foreign.name + "' is also that of " + other.name());
      }
    }
  }

  /// Checks that the reader accepts the default.
  void inspect_default(const Key& key, void* defaults, const std::string& dotted) {
    const Kind kind = key.type().kind;
    if (key.is_required() || kind == Kind::group || kind == Kind::choice) return;
    Problems problems;
    Node node = node_of(key.type(), key.locate(static_cast<const void*>(defaults)));
    const Environment none = [](const std::string&) { return std::nullopt; };
    Checker(root_, node, {.environment = none}, problems).read_default(key, node, defaults);
    for (const Problem& problem : problems.take()) fault(dotted, "its default is refused: " + problem.what);
  }

  void inspect_choice(const Schema& schema, const Schema::ChoiceKey& choice, const void* defaults,
                      const std::string& location) {
    const Key& key = schema.keys()[choice.key];
    const std::string dotted = join(location, key.name());
    const std::string& name = static_cast<const Choice*>(key.locate(defaults))->name;
    if (!name.empty() && choice.catalog->find(name) == nullptr)
      fault(dotted, "the default '" + name + "' is not registered");
    if (schema.find(choice.under) != nullptr) fault(dotted, "'" + choice.under + "' is also a key");
    for (const CatalogEntry& entry : choice.catalog->entries()) {
      for (const Key& option : entry.schema->keys()) {
        if (choice.under.empty() && schema.find(option.name()) != nullptr) {
          fault(join(dotted, entry.name), "its option '" + option.name() + "' is also a key of the group");
        }
      }
      inspect_group(*entry.schema, join(dotted, entry.name));
    }
    const auto beside = std::count_if(schema.choices().begin(), schema.choices().end(),
                                      [](const Schema::ChoiceKey& other) { return other.under.empty(); });
    if (beside > 1) fault(dotted, "two choices of one group have their options beside them");
  }

  const Schema& root_;
  std::set<const Schema*> seen_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> faults_of(const Schema& schema) { return Inspector(schema).inspect(); }

}  // namespace gputrain::config
