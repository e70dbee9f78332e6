// The filters, tests, methods and functions that a template can use, and how they get their arguments.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../values/value.hpp"

namespace gputrain::chat {

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// One call of a builtin: its arguments by the position of their parameter.
class Call {
 public:
  /// Throws Problem for arguments that the builtin does not have, or lacks.
  Call(const Builtin& builtin, Render& render, Value self, Arguments arguments);

  Render& render;
  Budget& budget;
  const Value self;  // operand of a filter or test, or a method's object
  Arguments rest;    // for a builtin that takes any

  bool has(size_t i) const { return given_[i].has_value(); }
  const Value& operator[](size_t i) const { return *given_[i]; }
  Value value_or(size_t i, Value otherwise) const { return has(i) ? *given_[i] : std::move(otherwise); }
  bool flag(size_t i) const { return has(i) && is_true(*given_[i]); }
  int64_t whole_or(size_t i, int64_t otherwise) const;
  const std::string& string(size_t i) const;
  /// Returns whether an argument is neither missing nor None.
  bool says(size_t i) const { return has(i) && !given_[i]->is_none(); }
  /// Returns the object as text: that of a method is a string.
  std::string self_text() const;

 private:
  const std::string& name_of(size_t i) const;

  const Builtin& builtin_;
  std::vector<std::optional<Value>> given_;
};

struct Builtin {
  std::string name;
  size_t required = 0;
  std::vector<std::string> parameters = {};
  Value (*run)(Call&) = nullptr;
  bool takes_any = false;  // arguments beyond the parameters go to Call::rest
};

/// Finds a filter; null if there is none.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_global(std::string_view name);
/// Returns an attribute of a value that is a function. Throws Problem for one that Python has and we lack.
const Builtin* find_method(const Value& self, std::string_view name);
/// Returns an attribute of `loop` that is no function.
std::optional<Value> loop_attribute(const Loop& loop, std::string_view name);
/// Returns whether it is a method that changes its object, which templates must not.
bool is_mutator(const Value& self, std::string_view name);

/// Runs a builtin and pays for its result.
Value run_builtin(const Builtin& builtin, Render& render, Value self, Arguments arguments);

}  // namespace gputrain::chat
