// Catalogs: what a job picks by name (models, datasets, optimizers). One file registers one entry.
//
//   const config::Registered<Mlp, MlpSpec> registered{models::catalog(), "mlp", "multilayer perceptron"};
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/config/describe.hpp"

namespace gputrain::config {

/// A catalog whose entries build a `Base` from their spec and `Arguments`.
template <class Base, class... Arguments>
class Catalog : public AnyCatalog {
 public:
  using Make = std::function<std::unique_ptr<Base>(const void* spec, Arguments...)>;

  explicit Catalog(std::string kind) : AnyCatalog(std::move(kind)) {}

  /// Registers an entry. Throws std::logic_error if the name is already registered.
  void add(CatalogEntry entry, Make make) {
    add_entry(std::move(entry));
    makers_.push_back(std::move(make));
  }

  /// How entry `Derived` is made from its spec: by its static function `make`, if it has one, else as an object of it.
  template <class Derived, class Spec>
  static Make maker() {
    return [](const void* options, Arguments... arguments) -> std::unique_ptr<Base> {
      const auto& spec = *static_cast<const Spec*>(options);
      if constexpr (requires { Derived::make(spec, std::forward<Arguments>(arguments)...); })
        return Derived::make(spec, std::forward<Arguments>(arguments)...);
      else
        return std::make_unique<Derived>(spec, std::forward<Arguments>(arguments)...);
    };
  }

  /// Builds the entry that `choice` names. Throws what the entry's constructor throws.
  std::unique_ptr<Base> make(const Choice& choice, Arguments... arguments) const {
    return makers_.at(index_of(choice.name))(choice.options.get(), std::forward<Arguments>(arguments)...);
  }

 private:
  std::vector<Make> makers_;
};

/// A catalog whose entries say what they can do before they are built: an entry has a static function
/// `Abilities abilities(const Spec&)` or `Abilities abilities()`; without one, it can do what `Abilities` has by
/// default.
template <class Abilities, class Base, class... Arguments>
class CatalogOfAbilities : public Catalog<Base, Arguments...> {
 public:
  using Catalog<Base, Arguments...>::Catalog;

  Abilities abilities(const Choice& choice) const {
    return abilities_.at(this->index_of(choice.name))(choice.options.get());
  }

  template <class Derived, class Spec>
  void note(const std::string&) {
    abilities_.push_back([](const void* spec) -> Abilities {
      if constexpr (requires(const Spec& options) { Derived::abilities(options); }) {
        return Derived::abilities(*static_cast<const Spec*>(spec));
      } else if constexpr (requires { Derived::abilities(); }) {
        return Derived::abilities();
      } else {
        return {};
      }
    });
  }

 private:
  std::vector<Abilities (*)(const void* spec)> abilities_;
};

/// The spec of an entry without options of its own.
struct NoOptions {
  static void describe(Description<NoOptions>&) {}
};

/// A namespace-scope object of this type registers `Derived(const Spec&, Arguments...)` under a name. A catalog that
/// knows more of its entries than how to make them has a member `note<Derived, Spec>(name)`.
/// refuse_wrong_registrations() reports a mistake. `file` and `line` default to the place of the registration; Clang 14
/// has no std::source_location.
template <class Derived, class Spec>
struct Registered {
  template <class AnyKind>
  Registered(AnyKind& catalog, const std::string& name, std::string help, const char* file = __builtin_FILE(),
             int line = __builtin_LINE()) {
    const std::string location = file + (":" + std::to_string(line));
    try {
      catalog.add(CatalogEntry{name, std::move(help), &schema_of<Spec>(), location},
                  AnyKind::template maker<Derived, Spec>());
      if constexpr (requires { catalog.template note<Derived, Spec>(name); })
        catalog.template note<Derived, Spec>(name);
    } catch (const std::exception& mistake) {
      note_wrong_registration("the " + catalog.kind() + " '" + name + "' of " + location + ": " + mistake.what());
    }
  }
};

}  // namespace gputrain::config
