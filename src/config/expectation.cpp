#include "expectation.hpp"

#include "scalar.hpp"

namespace gputrain::config {
namespace {

using Kind = ValueType::Kind;

std::string limit_text(double limit) {
  std::string text = number_text(limit);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string plural(const ValueType& type) {
  switch (type.kind) {
    case Kind::boolean: return "true or false";
    case Kind::integer: return "whole numbers";
    case Kind::number: return "numbers";
    case Kind::length: return "lengths";
    case Kind::duration: return "durations";
    case Kind::group: return "groups of keys";
    case Kind::list: return "lists";
    case Kind::string: return "texts";
    default: return "values, each " + expectation(type);
  }
}

}  // namespace

std::string expectation(const ValueType& type) {
  switch (type.kind) {
    case Kind::boolean: return "true or false";
    case Kind::integer: return "a whole number";
    case Kind::number: return "a number";
    case Kind::string: return "text";
    case Kind::length: return "a length (500, 5ep, 10%, 2Btok, 30m)";
    case Kind::duration: return "a duration (90s, 30m, 1h30m)";
    case Kind::automatic: return expectation(*type.inner) + " or auto";
    case Kind::optional: return expectation(*type.inner) + " or null";
    case Kind::list: return "a list of " + plural(*type.inner);
    case Kind::map: return "a map of names to " + plural(*type.inner);
    case Kind::group: return "a group of keys";
    case Kind::choice: return "a name";
  }
  return {};
}

std::string description(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null: return "nothing";
    case Node::Kind::list: return "a list";
    case Node::Kind::map: return "a group of keys";
    case Node::Kind::scalar: return node.quoted ? "the quoted text " + shown(node.text) : shown(node.text);
  }
  return {};
}

std::string limits_text(const Key::Limits& limits) {
  if (limits.low && limits.high) {
    if (limits.low_is_open || limits.high_is_open) {
      return (limits.low_is_open ? "above " : "at least ") + limit_text(*limits.low) + " and " +
             (limits.high_is_open ? "below " : "at most ") + limit_text(*limits.high);
    }
    return "between " + limit_text(*limits.low) + " and " + limit_text(*limits.high);
  }
  if (limits.low) return (limits.low_is_open ? "above " : "at least ") + limit_text(*limits.low);
  if (limits.high) return (limits.high_is_open ? "below " : "at most ") + limit_text(*limits.high);
  return {};
}

}  // namespace gputrain::config
