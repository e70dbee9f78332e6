#include "operators.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text.hpp"

namespace gputrain::chat {
namespace {

struct Number {
  bool is_real;
  int64_t whole;
  double real;
};

std::optional<Number> number_in(const Value& value) {
  if (const auto whole = value.index()) return Number{false, *whole, static_cast<double>(*whole)};
  if (value.real() != nullptr) return Number{true, 0, *value.real()};
  return std::nullopt;
}

constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void refuse(const char* symbol, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right})
    if (value->undefined() != nullptr) fail_undefined(*value->undefined());
  throw Problem(std::string("'") + symbol + "' does not work between " + type_name(left) + " and " + type_name(right));
}

void check_divisor(bool is_zero) {
  if (is_zero) throw Problem("division by zero");
}

int64_t floored(int64_t left, int64_t right) {
  const int64_t quotient = left / right;
  return quotient - (left % right != 0 && (left < 0) != (right < 0) ? 1 : 0);
}

double python_remainder(double left, double right) {
  const double rest = std::fmod(left, right);
  if (rest == 0) return std::copysign(0.0, right);
  return (rest < 0) != (right < 0) ? rest + right : rest;
}

/// Divides as CPython does, which rounds the difference first.
double floored(double left, double right) {
  const double rest = std::fmod(left, right);
  const double quotient = (left - rest) / right - (rest != 0 && (rest < 0) != (right < 0) ? 1 : 0);
  if (quotient == 0) return std::copysign(0.0, left / right);
  const double below = std::floor(quotient);
  return quotient - below > 0.5 ? below + 1 : below;
}

int64_t whole_power(int64_t base, int64_t exponent, bool& overflows) {
  int64_t result = 1;
  while (exponent > 0 && !overflows) {
    if (exponent & 1) overflows = __builtin_mul_overflow(result, base, &result);
    exponent >>= 1;
    if (exponent > 0) overflows = overflows || __builtin_mul_overflow(base, base, &base);
  }
  return result;
}

Value whole_arithmetic(Arithmetic operation, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflows = false;
  switch (operation) {
    case Arithmetic::add:
      overflows = __builtin_add_overflow(left, right, &result);
      break;
    case Arithmetic::subtract:
      overflows = __builtin_sub_overflow(left, right, &result);
      break;
    case Arithmetic::multiply:
      overflows = __builtin_mul_overflow(left, right, &result);
      break;
    case Arithmetic::power:
      result = whole_power(left, right, overflows);
      break;
    case Arithmetic::floor_divide:
      check_divisor(right == 0);
      overflows = right == -1 && left == std::numeric_limits<int64_t>::min();
      if (!overflows) result = floored(left, right);
      break;
    default:
      check_divisor(right == 0);
      result = right == -1 ? 0 : left - floored(left, right) * right;
  }
  if (overflows) throw Problem("a whole number gets larger than 64 bits hold");
  return Value(result);
}

Value real_arithmetic(Arithmetic operation, double left, double right) {
  switch (operation) {
    case Arithmetic::add:
      return Value(left + right);
    case Arithmetic::subtract:
      return Value(left - right);
    case Arithmetic::multiply:
      return Value(left * right);
    case Arithmetic::power:
      if ((left == 0 && right < 0) || (left < 0 && right != std::floor(right)))
        throw Problem("'**' has no result for these numbers");
      return Value(std::pow(left, right));
    case Arithmetic::divide:
      check_divisor(right == 0);
      return Value(left / right);
    case Arithmetic::floor_divide:
      check_divisor(right == 0);
      return Value(floored(left, right));
    default:
      check_divisor(right == 0);
      return Value(python_remainder(left, right));
  }
}

std::string escaped_text(const Text& text, Budget& budget) {
  std::string result;
  for (const char& c : *text.bytes) {
    const std::string_view entity = c == '&'    ? "&amp;"
                                    : c == '<'  ? "&lt;"
                                    : c == '>'  ? "&gt;"
                                    : c == '"'  ? "&#34;"
                                    : c == '\'' ? "&#39;"
                                                : std::string_view(&c, 1);
    budget.append(result, entity);
  }
  return result;
}

Value joined(const Text& left, const Text& right, Budget& budget) {
  const bool is_safe = left.is_safe || right.is_safe;
  std::string result;
  for (const Text* text : {&left, &right})
    budget.append(result, is_safe && !text->is_safe ? escaped_text(*text, budget) : *text->bytes);
  return Value(std::move(result), is_safe);
}

bool are_both(const Value& left, const Value& right, Sequence::Kind kind) {
  return left.sequence() != nullptr && right.sequence() != nullptr && left.sequence()->kind == kind &&
         right.sequence()->kind == kind;
}

Value sequences_joined(const Sequence& left, const Sequence& right, Budget& budget) {
  budget.spend(left.items.size() + right.items.size());
  Values items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return Value(std::make_shared<const Sequence>(left.kind, std::move(items)));
}

std::optional<Value> repeated(const Value& value, const Value& count, Budget& budget) {
  const auto times = count.index();
  if (!times) return std::nullopt;
  if (const Text* text = value.text()) {
    std::string result;
    for (int64_t i = 0; i < *times && !text->bytes->empty(); ++i) {
      budget.spend(1);
      budget.append(result, *text->bytes);
    }
    return Value(std::move(result), text->is_safe);
  }
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr || !(sequence->kind == Sequence::Kind::list || sequence->kind == Sequence::Kind::tuple))
    return std::nullopt;
  Values items;
  for (int64_t i = 0; i < *times && !sequence->items.empty(); ++i) {
    budget.spend(sequence->items.size());
    items.insert(items.end(), sequence->items.begin(), sequence->items.end());
  }
  return Value(std::make_shared<const Sequence>(sequence->kind, std::move(items)));
}

Value other_arithmetic(Arithmetic operation, const Value& left, const Value& right, Budget& budget) {
  if (operation == Arithmetic::add) {
    if (left.text() != nullptr && right.text() != nullptr) return joined(*left.text(), *right.text(), budget);
    for (const auto kind : {Sequence::Kind::list, Sequence::Kind::tuple})
      if (are_both(left, right, kind)) return sequences_joined(*left.sequence(), *right.sequence(), budget);
  }
  if (operation == Arithmetic::multiply) {
    if (auto result = repeated(left, right, budget)) return *result;
    if (auto result = repeated(right, left, budget)) return *result;
  }
  if (operation == Arithmetic::modulo && left.text() != nullptr)
    throw Problem("formatting a string by '%' is not supported");
  refuse(kSymbols[static_cast<size_t>(operation)], left, right);
}

bool equal_dicts(const Dict& left, const Dict& right, Budget& budget) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    budget.spend(1 + right.entries.size() / 8);
    const Value* other = right.find(key);
    if (other == nullptr || !equal(value, *other, budget)) return false;
  }
  return true;
}

/// Returns the first place where both differ, or the length of the shorter.
size_t first_difference(const Sequence& left, const Sequence& right, Budget& budget) {
  const size_t shorter = std::min(left.items.size(), right.items.size());
  for (size_t i = 0; i < shorter; ++i)
    if (!equal(left.items[i], right.items[i], budget)) return i;
  return shorter;
}

bool equal_sequences(const Value& left, const Value& right, Budget& budget) {
  const Sequence &a = *left.sequence(), &b = *right.sequence();
  if (&a == &b) return true;
  if (a.kind != b.kind || !a.is_indexed() || a.items.size() != b.items.size()) return false;
  return first_difference(a, b, budget) == a.items.size();
}

int sign(auto left, auto right) { return left < right ? -1 : left > right ? 1 : 0; }

}  // namespace

Value arithmetic(Arithmetic operation, const Value& left, const Value& right, Budget& budget) {
  const auto a = number_in(left), b = number_in(right);
  if (!a || !b) return other_arithmetic(operation, left, right, budget);
  const bool becomes_real =
      a->is_real || b->is_real || operation == Arithmetic::divide || (operation == Arithmetic::power && b->whole < 0);
  return becomes_real ? real_arithmetic(operation, a->real, b->real) : whole_arithmetic(operation, a->whole, b->whole);
}

Value negated(const Value& value) {
  if (value.undefined() != nullptr) fail_undefined(*value.undefined());
  const auto number = number_in(value);
  if (!number) throw Problem("'-' does not work on " + type_name(value));
  return number->is_real ? Value(-number->real) : whole_arithmetic(Arithmetic::subtract, 0, number->whole);
}

Value escaped(const Value& value, Budget& budget) {
  if (value.text() != nullptr && value.text()->is_safe) return value;
  const Value text(text_of(value, budget));
  return Value(escaped_text(*text.text(), budget), true);
}

bool equal(const Value& left, const Value& right, Budget& budget) {
  budget.spend(1);
  if (left.string() != nullptr && right.string() != nullptr) {
    budget.spend(std::min(left.string()->size(), right.string()->size()) / 64);
    return *left.string() == *right.string();
  }
  const auto a = number_in(left), b = number_in(right);
  if (a && b) return a->is_real || b->is_real ? a->real == b->real : a->whole == b->whole;
  if (left.sequence() != nullptr && right.sequence() != nullptr) return equal_sequences(left, right, budget);
  if (left.dict() != nullptr && right.dict() != nullptr) return equal_dicts(*left.dict(), *right.dict(), budget);
  if (left.space() != nullptr) return left.space() == right.space();
  if (left.loop() != nullptr) return left.loop() == right.loop();
  return (left.is_none() && right.is_none()) || (left.is_undefined() && right.is_undefined());
}

bool is_ordered(const Value& left, const Value& right) {
  const auto a = number_in(left), b = number_in(right);
  return !a || !b || !(std::isnan(a->real) || std::isnan(b->real));
}

int order(const Value& left, const Value& right, const char* symbol, Budget& budget) {
  budget.spend(1);
  const auto a = number_in(left), b = number_in(right);
  if (a && b) return a->is_real || b->is_real ? sign(a->real, b->real) : sign(a->whole, b->whole);
  if (left.string() != nullptr && right.string() != nullptr) {
    budget.spend(std::min(left.string()->size(), right.string()->size()) / 64);
    return sign(left.string()->compare(*right.string()), 0);
  }
  if (!are_both(left, right, Sequence::Kind::list) && !are_both(left, right, Sequence::Kind::tuple))
    refuse(symbol, left, right);
  const Sequence &x = *left.sequence(), &y = *right.sequence();
  const size_t at = first_difference(x, y, budget);
  if (at < x.items.size() && at < y.items.size()) return order(x.items[at], y.items[at], symbol, budget);
  return sign(x.items.size(), y.items.size());
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (const std::string* text = container.string()) {
    if (item.string() == nullptr) refuse("in", item, container);
    budget.spend_search(*text, *item.string());
    return text->find(*item.string()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    check_hashable(item);
    budget.spend(1 + dict->entries.size() / 8);
    return dict->find(item) != nullptr;
  }
  if (container.is_undefined()) return false;
  const auto items = items_of(container, budget);
  return std::any_of(items->items.begin(), items->items.end(),
                     [&](const Value& value) { return equal(value, item, budget); });
}

size_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Text* text = value.text()) return text->is_ascii ? text->bytes->size() : count_points(*text->bytes);
  if (value.dict() != nullptr) return value.dict()->entries.size();
  if (value.loop() != nullptr) return value.loop()->items->items.size();
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr || sequence->kind == Sequence::Kind::iterator)
    throw Problem("a " + type_name(value) + " has no length");
  return sequence->items.size();
}

std::shared_ptr<const Sequence> items_of(const Value& value, Budget& budget) {
  Values items;
  if (const Sequence* sequence = value.sequence()) {
    if (sequence->kind != Sequence::Kind::iterator) return value.shared_sequence();
    items.assign(sequence->items.begin() + static_cast<std::ptrdiff_t>(sequence->taken), sequence->items.end());
    sequence->taken = sequence->items.size();
  } else if (const std::string* text = value.string()) {
    budget.spend(text->size());
    for (size_t at = 0; at < text->size();) {
      const size_t begin = at;
      next_point(*text, at);
      items.emplace_back(std::string_view(*text).substr(begin, at - begin));
    }
  } else if (const Dict* dict = value.dict()) {
    for (const auto& entry : dict->entries) items.push_back(entry.first);
  } else if (!value.is_undefined()) {
    throw Problem("a " + type_name(value) + " cannot be iterated over");
  }
  budget.spend(items.size());
  return std::make_shared<const Sequence>(Sequence::Kind::list, std::move(items));
}

Value character(const Text& text, size_t index, Budget& budget) {
  if (text.is_ascii) return Value(std::string(1, (*text.bytes)[index]), text.is_safe);
  budget.spend(text.bytes->size() / 16);
  const size_t begin = byte_of_point(*text.bytes, index);
  size_t end = begin;
  next_point(*text.bytes, end);
  return Value(text.bytes->substr(begin, end - begin), text.is_safe);
}

namespace {

struct Stretch {
  int64_t start, count, step;
};

/// Returns the indices of a slice, as Python's slice.indices().
Stretch stretch_of(const SliceBounds& bounds, int64_t size) {
  const bool goes_back = bounds.step < 0;
  const int64_t lowest = goes_back ? -1 : 0, highest = goes_back ? size - 1 : size;
  const auto placed = [&](std::optional<int64_t> at, int64_t otherwise) {
    if (!at) return otherwise;
    const int64_t from_begin = *at < 0 ? std::max(*at, -size - 1) + size : *at;
    return std::clamp(from_begin, lowest, std::max(lowest, highest));
  };
  const int64_t start = placed(bounds.start, goes_back ? highest : lowest);
  const int64_t stop = placed(bounds.stop, goes_back ? lowest : highest);
  const int64_t way = goes_back ? start - stop : stop - start;
  const uint64_t step =
      goes_back ? uint64_t{0} - static_cast<uint64_t>(bounds.step) : static_cast<uint64_t>(bounds.step);
  const int64_t count = way <= 0 ? 0 : static_cast<int64_t>((static_cast<uint64_t>(way) - 1) / step) + 1;
  return {start, count, bounds.step};
}

}  // namespace

Value slice_of(const Value& value, const SliceBounds& bounds, Budget& budget) {
  if (value.undefined() != nullptr) fail_undefined(*value.undefined());
  if (bounds.step == 0) throw Problem("the step of a slice must not be 0");
  const Text* text = value.text();
  if (text == nullptr && (value.sequence() == nullptr || !value.sequence()->is_indexed()))
    throw Problem("a " + type_name(value) + " cannot be sliced");
  const auto items = text != nullptr && text->is_ascii ? nullptr : items_of(value, budget);
  const Stretch stretch = stretch_of(bounds, static_cast<int64_t>(length_of(value)));
  budget.spend(static_cast<size_t>(stretch.count) / (text != nullptr ? 64 : 1));
  Values taken;
  std::string piece;
  for (int64_t i = 0; i < stretch.count; ++i) {
    const auto at = static_cast<size_t>(stretch.start + i * stretch.step);
    if (text == nullptr) {
      taken.push_back(items->items[at]);
    } else if (items == nullptr) {
      piece += (*text->bytes)[at];
    } else {
      piece += *items->items[at].string();
    }
  }
  if (text != nullptr) return Value(std::move(piece), text->is_safe);
  const bool is_tuple = value.sequence()->kind == Sequence::Kind::tuple;
  return is_tuple ? Value::tuple(std::move(taken)) : Value::list(std::move(taken));
}

}  // namespace gputrain::chat
