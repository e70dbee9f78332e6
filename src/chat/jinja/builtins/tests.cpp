#include <algorithm>

#include "../values/operators.hpp"
#include "../values/text.hpp"
#include "builtin.hpp"

namespace gputrain::chat {
namespace {

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.string() != nullptr || value.sequence() != nullptr || value.dict() != nullptr ||
         value.loop() != nullptr;
}

bool is_indexed(const Value& value) {
  const Sequence* sequence = value.sequence();
  return value.is_undefined() || value.string() != nullptr || value.dict() != nullptr ||
         (sequence != nullptr && sequence->is_indexed());
}

bool is_number(const Value& value) {
  return value.boolean() != nullptr || value.whole() != nullptr || value.real() != nullptr;
}

bool is_boolean(const Value& value, bool wanted) { return value.boolean() != nullptr && *value.boolean() == wanted; }

/// Returns whether both are one object. Strings and numbers are compared, which Python leaves open.
bool is_same(const Value& left, const Value& right, Budget& budget) {
  if (left.sequence() != nullptr) return left.sequence() == right.sequence();
  if (left.dict() != nullptr) return left.dict() == right.dict();
  return type_name(left) == type_name(right) && equal(left, right, budget);
}

Value remainder_is(Call& call, int64_t divisor, int64_t wanted) {
  const Value rest = arithmetic(Arithmetic::modulo, call.self, Value(divisor), call.budget);
  return Value(equal(rest, Value(wanted), call.budget));
}

Value ordered(Call& call, const char* symbol, int wanted, bool or_equal) {
  const int difference = order(call.self, call[0], symbol, call.budget);
  return Value(is_ordered(call.self, call[0]) && (difference * wanted > 0 || (or_equal && difference == 0)));
}

bool same_case(Call& call, std::string (*cased)(std::string_view)) {
  const std::string text = call.self_text();
  return cased(text) == text && upper_cased(text) != lower_cased(text);
}

const std::vector<Builtin>& all_tests() {
  static const std::vector<std::string> kOther = {"other"};
  static const std::vector<Builtin> kTests = {
      {"defined", 0, {}, [](Call& call) { return Value(!call.self.is_undefined()); }},
      {"undefined", 0, {}, [](Call& call) { return Value(call.self.is_undefined()); }},
      {"none", 0, {}, [](Call& call) { return Value(call.self.is_none()); }},
      {"true", 0, {}, [](Call& call) { return Value(is_boolean(call.self, true)); }},
      {"false", 0, {}, [](Call& call) { return Value(is_boolean(call.self, false)); }},
      {"boolean", 0, {}, [](Call& call) { return Value(call.self.boolean() != nullptr); }},
      {"string", 0, {}, [](Call& call) { return Value(call.self.string() != nullptr); }},
      {"number", 0, {}, [](Call& call) { return Value(is_number(call.self)); }},
      {"integer", 0, {}, [](Call& call) { return Value(call.self.whole() != nullptr); }},
      {"float", 0, {}, [](Call& call) { return Value(call.self.real() != nullptr); }},
      {"mapping", 0, {}, [](Call& call) { return Value(call.self.dict() != nullptr); }},
      {"iterable", 0, {}, [](Call& call) { return Value(is_iterable(call.self)); }},
      {"sequence", 0, {}, [](Call& call) { return Value(is_indexed(call.self)); }},
      {"callable",
       0,
       {},
       [](Call& call) { return Value(call.self.function() != nullptr || call.self.is_undefined()); }},
      {"in", 1, {"seq"}, [](Call& call) { return Value(contains(call[0], call.self, call.budget)); }},
      {"sameas", 1, kOther, [](Call& call) { return Value(is_same(call.self, call[0], call.budget)); }},
      {"divisibleby", 1, {"num"}, [](Call& call) { return remainder_is(call, call.whole_or(0, 1), 0); }},
      {"odd", 0, {}, [](Call& call) { return remainder_is(call, 2, 1); }},
      {"even", 0, {}, [](Call& call) { return remainder_is(call, 2, 0); }},
      {"lower", 0, {}, [](Call& call) { return Value(same_case(call, lower_cased)); }},
      {"upper", 0, {}, [](Call& call) { return Value(same_case(call, upper_cased)); }},
      {"eq", 1, kOther, [](Call& call) { return Value(equal(call.self, call[0], call.budget)); }},
      {"ne", 1, kOther, [](Call& call) { return Value(!equal(call.self, call[0], call.budget)); }},
      {"lt", 1, kOther, [](Call& call) { return ordered(call, "<", -1, false); }},
      {"le", 1, kOther, [](Call& call) { return ordered(call, "<=", -1, true); }},
      {"gt", 1, kOther, [](Call& call) { return ordered(call, ">", 1, false); }},
      {"ge", 1, kOther, [](Call& call) { return ordered(call, ">=", 1, true); }},
  };
  return kTests;
}

constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"==", "eq"}, {"equalto", "eq"}, {"!=", "ne"},          {"<", "lt"}, {"lessthan", "lt"},
    {"<=", "le"}, {">", "gt"},       {"greaterthan", "gt"}, {">=", "ge"}};

}  // namespace

const Builtin* find_test(std::string_view name) {
  for (const auto& [other, usual] : kOtherNames)
    if (name == other) name = usual;
  const auto& tests = all_tests();
  const auto found = std::find_if(tests.begin(), tests.end(), [&](const Builtin& test) { return test.name == name; });
  return found == tests.end() ? nullptr : &*found;
}

}  // namespace gputrain::chat
