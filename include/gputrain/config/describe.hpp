// describe(): every key of the job is declared once, in the struct that holds it. YAML, --set, defaults, ranges,
// resume classes, help, JSON schema and the reference page all come from that one declaration.
//
//   struct SgdSpec {
//     double lr = 1e-3;
//     bool nesterov = false;
//     static void describe(config::Description<SgdSpec>& d) {
//       d.key("lr", &SgdSpec::lr, "learning rate").above(0).instead_of({"learning_rate"});
//       d.key("nesterov", &SgdSpec::nesterov, "Nesterov momentum");
//     }
//   };
//
// A default is what the member holds in a default-constructed struct. Members may be bool, int64_t, double,
// std::string, Auto<T>, Length, std::optional<T> (null allowed), std::vector<T>, another described struct (a nested
// map), or Choice (a registry entry picked by a key, with that entry's own options).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/config/schema.hpp"
#include "gputrain/config/value_types.hpp"

namespace gputrain::config {

/// Collects the keys of one spec struct. Handed to `Spec::describe`.
template <class Spec>
class Description {
 public:
  explicit Description(Schema& schema) : schema_(schema) {}

  /// One line that says what this group of keys is for.
  void summary(std::string text) { schema_.set_summary(std::move(text)); }

  /// Declares a key stored in `member`; returns it for further attributes.
  template <class Value>
  Key& key(std::string name, Value Spec::* member, std::string help) {
    return schema_.add(Key(std::move(name), std::move(help), type_of<Value>(), [member](void* spec) -> void* {
      return &(static_cast<Spec*>(spec)->*member);
    }));
  }

  /// Declares that key `name` picks an entry of `catalog`; its options are keys beside `name`, or, when `under` is not
  /// empty, keys of the map `under`.
  Key& choice(std::string name, Choice Spec::* member, const AnyCatalog& catalog, std::string help,
              std::string under = {}) {
    return schema_.add_choice(Key(std::move(name), std::move(help), choice_type(catalog), [member](void* spec) -> void* {
      return &(static_cast<Spec*>(spec)->*member);
    }), catalog, std::move(under));
  }

 private:
  Schema& schema_;
};

/// The schema of a described struct, built once.
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
