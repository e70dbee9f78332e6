#include "expectation.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "../key_index.hpp"
#include "../yaml/scalar.hpp"

namespace gputrain::config {
namespace {

using Kind = ValueType::Kind;

std::string plural(const ValueType& type, const Key& key) {
  switch (type.kind) {
    case Kind::boolean:
      return "true or false";
    case Kind::integer:
      return "whole numbers";
    case Kind::number:
      return "numbers";
    case Kind::length:
      return "lengths";
    case Kind::duration:
      return "durations";
    case Kind::group:
      return "groups of keys";
    case Kind::list:
      return type.takes_one ? "values, each " + expectation(type, key) : "lists";
    case Kind::string:
      return "texts";
    default:
      return "values, each " + expectation(type, key);
  }
}

std::string length_examples(const Key& key) {
  using Unit = Length::Unit;
  constexpr std::array<std::pair<Unit, std::string_view>, 5> kExamples{{{Unit::steps, "500 for steps"},
                                                                        {Unit::epochs, "5ep"},
                                                                        {Unit::percent, "10%"},
                                                                        {Unit::tokens, "2Btok"},
                                                                        {Unit::seconds, "30m"}}};
  const std::vector<Unit>& allowed = key.allowed_units();
  std::string examples;
  for (const auto& [unit, example] : kExamples) {
    if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), unit) == allowed.end()) continue;
    examples += (examples.empty() ? "" : ", ") + std::string(example);
  }
  return examples;
}

}  // namespace

std::string expectation(const ValueType& type, const Key& key) {
  switch (type.kind) {
    case Kind::boolean:
      return "true or false";
    case Kind::integer:
      return "a whole number";
    case Kind::number:
      return "a number";
    case Kind::string:
      return "text";
    case Kind::length:
      return "a length (" + length_examples(key) + ")";
    case Kind::duration:
      return "a duration (90s, 30m, 1h30m)";
    case Kind::automatic:
      return expectation(*type.inner, key) + " or auto";
    case Kind::optional:
      return expectation(*type.inner, key) + " or null";
    case Kind::list:
      return type.takes_one ? (key_of_text(*type.inner) == nullptr ? "" : "text, ") + expectation(*type.inner, key) +
                                  ", a list of them"
                            : "a list of " + plural(*type.inner, key);
    case Kind::map:
      return "a map of names to " + plural(*type.inner, key);
    case Kind::group:
      return "a group of keys";
    case Kind::choice:
      return "a name";
  }
  return {};
}

std::string description(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return "nothing";
    case Node::Kind::list:
      return "a list";
    case Node::Kind::map:
      return "a group of keys";
    case Node::Kind::scalar:
      return node.quoted ? "the quoted text " + shown(node.text) : shown(node.text);
  }
  return {};
}

std::string limits_text(const Key::Limits& limits) {
  if (limits.low && limits.high) {
    if (limits.low_is_open || limits.high_is_open) {
      return (limits.low_is_open ? "above " : "at least ") + plain_number(*limits.low) + " and " +
             (limits.high_is_open ? "below " : "at most ") + plain_number(*limits.high);
    }
    return "between " + plain_number(*limits.low) + " and " + plain_number(*limits.high);
  }
  if (limits.low) return (limits.low_is_open ? "above " : "at least ") + plain_number(*limits.low);
  if (limits.high) return (limits.high_is_open ? "below " : "at most ") + plain_number(*limits.high);
  return {};
}

}  // namespace gputrain::config
