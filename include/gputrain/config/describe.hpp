// describe(): declares each key of the job once, in the struct that holds it. YAML, --set, defaults, ranges, resume
// classes, help, JSON schema and the reference page all come from that declaration.
//
//   struct SgdSpec {
//     double lr = 1e-3;
//     bool nesterov = false;
//     static void describe(config::Description<SgdSpec>& d) {
//       d.key("lr", &SgdSpec::lr, "learning rate").above(0).aliases({"learning_rate"});
//       d.key("nesterov", &SgdSpec::nesterov, "Nesterov momentum");
//     }
//   };
//
// The default of a key is the member's value in a default-constructed struct. Members may be bool, int64_t, double,
// std::string, Auto<T>, Length, Duration, std::optional<T> (null allowed), std::vector<T>, OneOrMore<T>,
// std::map<std::string, T> (free keys), another described struct (a nested map), or Choice (a catalog entry that a key
// picks, with that entry's options).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "gputrain/config/schema.hpp"
#include "gputrain/config/value_type.hpp"
#include "gputrain/config/value_types.hpp"

namespace gputrain::config {

/// Collects the keys of one spec struct; `Spec::describe` gets one.
template <class Spec>
class Description {
 public:
  explicit Description(Schema& schema) : schema_(schema) {}

  /// Sets one line about the purpose of this group of keys.
  void summary(std::string text) { schema_.set_summary(std::move(text)); }

  /// Sets what to write instead of keys of other tools that no key has as an alias; for the root alone.
  void foreign(Schema::Foreign instead) { schema_.set_foreign(std::move(instead)); }

  /// Says that the struct declares only a part of the group's keys: other keys are ignored, not reported as unknown.
  void is_a_part() { schema_.set_part(); }

  /// Declares a key stored in `member`, of the struct or of a base of it. Returns the key for further attributes.
  template <class Value, class Holder>
  Key& key(std::string name, Value Holder::*member, std::string help) {
    static_assert(std::is_base_of_v<Holder, Spec>);
    static_assert(!std::is_same_v<Value, Choice>, "a Choice is declared by choice(), with its catalog");
    return schema_.add(Key(std::move(name), std::move(help), type_of<Value>(), locate(member)));
  }

  /// Declares that key `name` picks an entry of `catalog`. The entry's options are keys beside `name` or, if `under` is
  /// not empty, keys of the map `under`.
  Key& choice(std::string name, Choice Spec::*member, const AnyCatalog& catalog, std::string help,
              std::string under = {}) {
    return schema_.add_choice(Key(std::move(name), std::move(help), type_of<Choice>(), locate(member)), catalog,
                              std::move(under));
  }

  /// Declares the keys of another struct as keys of this one. `find` gives the address of that struct in a Spec.
  void keys_of(const Schema& other, const Key::Locate& find) {
    for (const Key& key : other.keys()) schema_.add(key.within(find));
  }

  /// Collects all other keys that contain a '/', such as `val/top1`, in a map. Help shows them as `name`.
  template <class Value>
  Key& pattern(std::string name, std::map<std::string, Value> Spec::*member, std::string help) {
    return schema_.add_pattern(
        Key(std::move(name), std::move(help), type_of<std::map<std::string, Value>>(), locate(member)));
  }

  /// Sets a check over several keys, `void(const Spec&, SpecIssues&)`. It runs if each key alone is valid. Each
  /// complaint is reported at the place of its key.
  template <class Check>
  void check(Check test) {
    schema_.set_check([test](const void* spec, SpecIssues& issues) { test(*static_cast<const Spec*>(spec), issues); });
  }

 private:
  template <class Value, class Holder>
  static Key::Locate locate(Value Holder::*member) {
    return [member](void* spec) -> void* { return &(static_cast<Spec*>(spec)->*member); };
  }

  Schema& schema_;
};

template <class Spec>
const Schema& schema_of() {
  static const Schema schema = [] {
    Schema built([]() -> std::shared_ptr<void> { return std::make_shared<Spec>(); });
    Description<Spec> description(built);
    Spec::describe(description);
    return built;
  }();
  return schema;
}

}  // namespace gputrain::config
