// Python's operators on values. A mistake, such as a type that an operator does not take, throws Problem.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "value.hpp"

namespace gputrain::chat {

enum class Arithmetic { add, subtract, multiply, divide, floor_divide, modulo, power };
Value arithmetic(Arithmetic operation, const Value& left, const Value& right, Budget& budget);
Value negated(const Value& value);

/// Escapes text for HTML, which is safe from then on.
Value escaped(const Value& value, Budget& budget);

bool equal(const Value& left, const Value& right, Budget& budget);
/// Returns whether both can be ordered: false if both are numbers of which one is NaN.
bool is_ordered(const Value& left, const Value& right);
/// Less than 0, 0 or more than 0. `symbol` is the operator, for messages.
int order(const Value& left, const Value& right, const char* symbol, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);

/// Returns the items that `for` goes through. An iterator is empty afterwards.
std::shared_ptr<const Sequence> items_of(const Value& value, Budget& budget);
size_t length_of(const Value& value);
/// Returns the code point at `index`, which there is.
Value character(const Text& text, size_t index, Budget& budget);

struct SliceBounds {
  std::optional<int64_t> start, stop;
  int64_t step = 1;
};
Value slice_of(const Value& value, const SliceBounds& bounds, Budget& budget);

/// Prints str(value) and repr(value) behind `out`.
void print(const Value& value, std::string& out, Budget& budget);
void print_repr(const Value& value, std::string& out, Budget& budget);
std::string text_of(const Value& value, Budget& budget);

struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  std::optional<std::string> indent = {};
  std::string item_separator = ", ", key_separator = ": ";
};
/// Writes JSON as Python's json.dumps does.
std::string json_text(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace gputrain::chat
