// How a C++ type maps to a YAML value: its kind, its inner type, and access to its parts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "gputrain/config/schema.hpp"
#include "gputrain/config/value_types.hpp"

namespace gputrain::config {

/// One value type. Readers, writers and printers switch over `kind`; the set of kinds is fixed.
struct ValueType {
  enum class Kind { boolean, integer, number, string, length, duration, automatic, optional, list, map, group, choice };

  Kind kind = Kind::string;
  const ValueType* inner = nullptr;     // automatic, optional, list, map: type of the parts
  const Schema& (*schema)() = nullptr;  // group: the described struct
  bool takes_one = false;               // list: a single element may be written without brackets

  /// Access to the parts of a holder: automatic and optional (none or one), list, map. Only maps use the key.
  using Visit = std::function<void(const std::string& key, const void* part)>;
  void (*clear)(void* holder) = nullptr;
  void* (*part_to_fill)(void* holder, const std::string& key) = nullptr;  // a new part, or the one an optional holds
  void (*reserve)(void* holder, size_t count) = nullptr;  // list: so many parts then keep their addresses
  void (*each)(const void* holder, const Visit& visit) = nullptr;
};

namespace detail {

template <class T, template <class...> class Template>
inline constexpr bool is_specialization = false;
template <template <class...> class Template, class... Arguments>
inline constexpr bool is_specialization<Template<Arguments...>, Template> = true;

template <class T>
inline constexpr bool always_false = false;

/// Returns the std::optional in a holder: the holder itself, or the member of an Auto.
template <class T, class Holder>
std::optional<T>& optional_of(void* holder) {
  if constexpr (is_specialization<Holder, Auto>) {
    return static_cast<Holder*>(holder)->value;
  } else {
    return *static_cast<Holder*>(holder);
  }
}

template <class T, class Holder>
ValueType optional_type(ValueType::Kind kind) {
  ValueType type;
  type.kind = kind;
  type.inner = &type_of<T>();
  type.clear = [](void* holder) { optional_of<T, Holder>(holder).reset(); };
  type.part_to_fill = [](void* holder, const std::string&) -> void* {
    auto& optional = optional_of<T, Holder>(holder);
    if (!optional.has_value()) optional.emplace();
    return &*optional;
  };
  type.each = [](const void* holder, const ValueType::Visit& visit) {
    const auto& optional = optional_of<T, Holder>(const_cast<void*>(holder));
    if (optional.has_value()) visit({}, &*optional);
  };
  return type;
}

/// Returns the std::vector in a holder: the holder itself, or the member of a OneOrMore.
template <class T, class Holder>
std::vector<T>& vector_of(void* holder) {
  if constexpr (is_specialization<Holder, OneOrMore>) {
    return static_cast<Holder*>(holder)->values;
  } else {
    return *static_cast<Holder*>(holder);
  }
}

template <class T, class Holder>
ValueType list_type() {
  static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no addressable elements");
  ValueType type;
  type.kind = ValueType::Kind::list;
  type.inner = &type_of<T>();
  type.takes_one = is_specialization<Holder, OneOrMore>;
  type.clear = [](void* holder) { vector_of<T, Holder>(holder).clear(); };
  type.reserve = [](void* holder, size_t count) { vector_of<T, Holder>(holder).reserve(count); };
  type.part_to_fill = [](void* holder, const std::string&) -> void* {
    return &vector_of<T, Holder>(holder).emplace_back();
  };
  type.each = [](const void* holder, const ValueType::Visit& visit) {
    for (const T& part : vector_of<T, Holder>(const_cast<void*>(holder))) visit({}, &part);
  };
  return type;
}

template <class T>
ValueType map_type() {
  using Map = std::map<std::string, T>;
  ValueType type;
  type.kind = ValueType::Kind::map;
  type.inner = &type_of<T>();
  type.clear = [](void* holder) { static_cast<Map*>(holder)->clear(); };
  type.part_to_fill = [](void* holder, const std::string& key) -> void* { return &(*static_cast<Map*>(holder))[key]; };
  type.each = [](const void* holder, const ValueType::Visit& visit) {
    for (const auto& [key, part] : *static_cast<const Map*>(holder)) visit(key, &part);
  };
  return type;
}

template <class T>
ValueType make_type() {
  using Kind = ValueType::Kind;
  if constexpr (std::is_same_v<T, bool>) {
    return {.kind = Kind::boolean};
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return {.kind = Kind::integer};
  } else if constexpr (std::is_same_v<T, double>) {
    return {.kind = Kind::number};
  } else if constexpr (std::is_same_v<T, std::string>) {
    return {.kind = Kind::string};
  } else if constexpr (std::is_same_v<T, Length>) {
    return {.kind = Kind::length};
  } else if constexpr (std::is_same_v<T, Duration>) {
    return {.kind = Kind::duration};
  } else if constexpr (std::is_same_v<T, Choice>) {
    return {.kind = Kind::choice};
  } else if constexpr (is_specialization<T, Auto>) {
    return optional_type<typename decltype(T::value)::value_type, T>(Kind::automatic);
  } else if constexpr (is_specialization<T, std::optional>) {
    return optional_type<typename T::value_type, T>(Kind::optional);
  } else if constexpr (is_specialization<T, std::vector>) {
    return list_type<typename T::value_type, T>();
  } else if constexpr (is_specialization<T, OneOrMore>) {
    return list_type<typename decltype(T::values)::value_type, T>();
  } else if constexpr (is_specialization<T, std::map>) {
    static_assert(std::is_same_v<typename T::key_type, std::string>, "maps are keyed by text");
    return map_type<typename T::mapped_type>();
  } else if constexpr (std::is_integral_v<T> || std::is_floating_point_v<T>) {
    static_assert(always_false<T>, "described members are int64_t or double, not other number types");
  } else {
    return {.kind = Kind::group, .schema = &schema_of<T>};
  }
}

}  // namespace detail

template <class T>
const ValueType& type_of() {
  static const ValueType type = detail::make_type<T>();
  return type;
}

}  // namespace gputrain::config
