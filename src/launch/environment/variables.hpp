// The environment variables about ranks, with errors that show all of them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "gputrain/launch/environment.hpp"

namespace gputrain::launch {

/// A number and the variable that it comes from.
struct Number {
  std::string name;
  int value = 0;

  std::string text() const { return name + "=" + std::to_string(value); }
};

// Enough for any cluster, and small enough that arithmetic on ranks never overflows.
inline constexpr int kMaximumRanks = 1 << 20;

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> text(const char* name) const { return lookup_(name); }
  bool has(const char* name) const { return lookup_(name).has_value(); }
  /// Returns a variable's number; empty if it is not set. Throws if it is no whole number within the bounds.
  std::optional<Number> number(const char* name, int lowest, int highest) const;
  /// Returns the first of these variables that is set.
  std::optional<Number> number(std::initializer_list<const char*> names, int lowest, int highest) const;
  std::optional<uint64_t> large_number(const char* name) const;

  /// Throws Error(usage) with every variable about ranks that is set. `hint`: what to do, if not the usual.
  [[noreturn]] void fail(std::string what, std::string hint = {}) const;

 private:
  [[noreturn]] void refuse_number(const char* name, const std::string& value, const std::string& bounds) const;
  std::string all() const;

  const Lookup& lookup_;
};

}  // namespace gputrain::launch
