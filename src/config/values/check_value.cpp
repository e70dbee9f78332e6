#include <algorithm>

#include "../check.hpp"
#include "../key_index.hpp"
#include "../yaml/odd_characters.hpp"
#include "../yaml/scalar.hpp"
#include "expectation.hpp"
#include "gputrain/config/names.hpp"
#include "path_value.hpp"

namespace gputrain::config {
namespace {

using Kind = ValueType::Kind;

constexpr size_t kMostKeys = 12;

/// Returns a hint for a boolean written as another word.
std::string boolean_hint(const std::string& text) {
  for (const std::string_view word : {"yes", "Yes", "YES", "on", "On", "ON", "y", "1"}) {
    if (text == word) return "write `true`";
  }
  for (const std::string_view word : {"no", "No", "NO", "off", "Off", "OFF", "n", "0"}) {
    if (text == word) return "write `false`";
  }
  return {};
}

/// Returns `key: value`; for an element of a list, which has no key, the value.
std::string line_of(const Node& node, const std::string& value) {
  return node.key.empty() ? value : node.key + ": " + value;
}

/// Returns 0.1 and 10 as "10%"; empty: no part of 100.
std::string percent_of_number(const std::string& text) {
  const Parsed<double> number = parse_number(text);
  if (!number.value || *number.value <= 0 || *number.value >= 100) return {};
  return *number.value < 1 ? percent_of_ratio(text) : text + "%";
}

/// Returns, for `data: {train: folder}`, the line with `path`, plus the other keys that the group needs.
std::string path_hint(const Schema& schema, const std::string& dotted, const Node& node) {
  const auto is_path = [](const Key& key) { return key.name() == "path"; };
  if (node.kind != Node::Kind::scalar || std::none_of(schema.keys().begin(), schema.keys().end(), is_path)) return {};
  const Plain found = classify(node.text);
  if (!node.quoted && found != Plain::text) {  // `val: 0.1`
    const Key* split = schema.find("split");
    const std::string part = split == nullptr ? "" : percent_of_number(node.text);
    return part.empty() ? "" : "write `" + line_of(node, "{split: " + part + "}`");
  }
  std::string line = line_of(node, "{path: ") + to_flow(node), also;
  for (const Schema::ChoiceKey& choice : schema.choices()) {
    const Key& key = schema.keys()[choice.key];
    const bool lends = key.inherited_from() == dotted + "." + key.name();
    if (!lends && !key.is_required()) continue;  // not required
    line += ", " + key.name() + ": ...";
    also += "; " + key.name() + " is " + either(choice.catalog->names());
  }
  return "write `" + line + "}`" + also;
}

/// Returns the one entry with this name, a similar one, or one that the name begins with: adamw for adamw_torch_fused.
std::string entry_meant(const AnyCatalog& catalog, const std::string& name) {
  if (catalog.find(name) != nullptr) return name;
  const std::vector<std::string> names = catalog.names(), near = nearest(name, names);
  if (near.size() == 1) return near.front();
  const auto begins = [&](const std::string& entry) { return name.starts_with(entry + "_"); };
  const auto found = std::ranges::find_if(names, begins);
  return found == names.end() ? "" : *found;
}

/// Returns a hint for `model: resnet18`.
std::string group_hint(const Schema& schema, const std::string& dotted, const Node& node) {
  for (const Schema::ChoiceKey& choice : schema.choices()) {
    if (node.kind != Node::Kind::scalar) continue;
    const std::string name = entry_meant(*choice.catalog, node.text);
    if (!name.empty()) return "write `" + line_of(node, "{" + schema.keys()[choice.key].name() + ": " + name + "}`");
  }
  if (std::string hint = path_hint(schema, dotted, node); !hint.empty()) return hint;
  std::vector<std::string> names;
  for (const Key& key : schema.keys()) names.push_back(key.name());
  return names.size() > kMostKeys ? "" : "keys in it: " + either(names);
}

/// Returns whether a number stands for a group whose first key takes numbers: `random_erasing: 0.25`.
bool is_number_for_first(const Schema& schema, const Node& node) {
  const Plain found = classify(node.text);
  const bool is_number = found == Plain::integer || found == Plain::number;
  if (node.kind != Node::Kind::scalar || node.quoted || !is_number || schema.keys().empty()) return false;
  const Kind first = schema.keys().front().type().kind;
  return first == Kind::number || first == Kind::integer;
}

/// Returns, for `include: src` and `betas: 0.9`, the value in brackets, if it is a whole list then, or the form of one.
std::string list_hint(const Key& key, const Node& node, bool fits) {
  if (node.kind != Node::Kind::scalar) return {};
  const size_t fewest = std::max<size_t>(key.limits().fewest.value_or(1), 1);
  Node inside = node;  // other characters have a meaning in brackets than outside
  inside.quoted = inside.quoted || inside.text.find_first_of(",?:#[]{}") != std::string::npos;
  if (fewest == 1 && fits) return "write `[" + to_flow(inside) + "]`";
  std::string parts = "...";
  for (size_t i = 1; i < fewest; ++i) parts += ", ...";
  return "write a list in square brackets: `" + line_of(node, "[" + parts + "]`");
}

/// Returns the group that a text stands for: the value of the only key that must be given.
Node group_of_text(const Key& key, const Node& text) {
  Node group{.kind = Node::Kind::map, .location = text.location};
  group.parts.push_back(text);
  group.parts.back().key = key.name();
  return group;
}

/// Returns whether the value may be the only element of a list, without brackets.
bool is_one_element(const ValueType& list, const Node& node) {
  return node.kind == Node::Kind::scalar || (node.kind == Node::Kind::map && list.inner->kind == Kind::group);
}

}  // namespace

void Checker::read_value(const Slot& slot, const ValueType& type, const Node& node, void* target) {
  if (node.is_broken) {
    misses_values_ = true;
    return;
  }
  switch (type.kind) {
    case Kind::optional:
      if (node.kind == Node::Kind::null) {
        type.clear(target);
        origins_[slot.dotted] = node.location;
        return;
      }
      return read_value(slot, *type.inner, node, type.part_to_fill(target, {}));
    case Kind::automatic:
      if (node.kind == Node::Kind::scalar && node.text == "auto") {
        type.clear(target);
        origins_[slot.dotted] = node.location;
        return;
      }
      return read_value(slot, *type.inner, node, type.part_to_fill(target, {}));
    case Kind::group:
      if (node.kind != Node::Kind::map) {
        Problems of_first;
        Checker part(schema_, job_, {.environment = reading_.environment, .advises = false}, of_first);
        const bool is_number = is_number_for_first(type.schema(), node);
        if (is_number) part.try_out(type.schema(), type.schema().keys().front(), node, slot.dotted);
        return wrong_type(
            slot, node,
            is_number && of_first.count() == 0
                ? "write `" + line_of(node, "{" + type.schema().keys().front().name() + ": ") + node.text + "}`"
                : group_hint(type.schema(), slot.dotted, node));
      }
      return read_group(type.schema(),
                        {&node, slot.dotted, node.key_location.source ? node.key_location : node.location}, target);
    case Kind::list:
      if (type.takes_one && is_one_element(type, node)) {
        type.clear(target);
        const Key* text = node.kind == Node::Kind::scalar ? key_of_text(*type.inner) : nullptr;
        return read_value(slot, *type.inner, text == nullptr ? node : group_of_text(*text, node),
                          type.part_to_fill(target, {}));
      }
      return read_list(slot, type, node, target);
    case Kind::map:
      return read_map(slot, type, node, target);
    default:
      return read_scalar(slot, type, node, target);
  }
}

void Checker::read_list(const Slot& slot, const ValueType& type, const Node& node, void* target) {
  if (node.kind != Node::Kind::list) {
    Problems of_part;
    Checker part(schema_, job_, {.environment = reading_.environment, .advises = false}, of_part);
    part.read_value({slot.key, slot.dotted, *type.inner}, *type.inner, node, type.part_to_fill(target, {}));
    return wrong_type(slot, node, list_hint(slot.key, node, of_part.count() == 0));
  }
  origins_[slot.dotted] = node.location;
  const Key::Limits& limits = slot.key.limits();
  if (node.parts.size() < limits.fewest.value_or(0) || node.parts.size() > limits.most.value_or(node.parts.size())) {
    const bool is_exact = limits.fewest == limits.most;
    const std::string wanted = is_exact
                                   ? "exactly " + std::to_string(*limits.fewest)
                                   : std::to_string(limits.fewest.value_or(0)) + " to " + std::to_string(*limits.most);
    problems_.add(node.location,
                  slot.dotted + " takes " + wanted + " values, not " + std::to_string(node.parts.size()));
  }
  type.clear(target);
  type.reserve(target, node.parts.size());  // checks of groups in it run later
  size_t index = 0;
  for (const Node& part : node.parts) {
    const std::string dotted = slot.dotted + "[" + std::to_string(index++) + "]";
    read_value({slot.key, dotted, *type.inner}, *type.inner, part, type.part_to_fill(target, {}));
  }
}

void Checker::read_map(const Slot& slot, const ValueType& type, const Node& node, void* target) {
  if (node.kind != Node::Kind::map) return wrong_type(slot, node);
  origins_[slot.dotted] = node.location;
  type.clear(target);
  for (const Node& part : node.parts) {
    if (part.removes) continue;
    const std::string dotted = slot.dotted + "." + part.key;
    read_value({slot.key, dotted, *type.inner}, *type.inner, part, type.part_to_fill(target, part.key));
  }
}

void Checker::read_scalar(const Slot& slot, const ValueType& type, const Node& node, void* target) {
  if (node.kind != Node::Kind::scalar) {
    const bool is_empty = node.kind == Node::Kind::null && !node.removes;
    return wrong_type(slot, node, is_empty ? "give it a value, or leave the key out" : "");
  }
  if (type.kind == Kind::string) return read_string(slot, node, *static_cast<std::string*>(target));
  if (node.quoted && (type.kind == Kind::boolean || type.kind == Kind::integer || type.kind == Kind::number)) {
    const bool would_fit = classify(node.text) == Plain::integer || classify(node.text) == Plain::number ||
                           classify(node.text) == Plain::boolean;
    return wrong_type(slot, node, would_fit ? "write `" + node.text + "` without the quotes" : "");
  }
  switch (type.kind) {
    case Kind::boolean: {
      if (classify(node.text) != Plain::boolean) return wrong_type(slot, node, boolean_hint(node.text));
      origins_[slot.dotted] = node.location;
      *static_cast<bool*>(target) = node.text[0] == 't' || node.text[0] == 'T';
      return;
    }
    case Kind::integer:
      return read_parsed(slot, node, parse_integer, *static_cast<int64_t*>(target));
    case Kind::number:
      return read_parsed(slot, node, parse_number, *static_cast<double*>(target));
    case Kind::length:
      return read_parsed(slot, node, parse_length, *static_cast<Length*>(target));
    case Kind::duration:
      return read_parsed(slot, node, parse_duration, *static_cast<Duration*>(target));
    default:
      return;
  }
}

namespace {

double magnitude(int64_t value) { return static_cast<double>(value); }
double magnitude(double value) { return value; }
double magnitude(const Length& value) { return value.value; }
double magnitude(const Duration& value) { return value.seconds; }

bool allows(const Key& key, const Length& length) {
  const std::vector<Length::Unit>& units = key.allowed_units();
  return units.empty() || std::find(units.begin(), units.end(), length.unit) != units.end();
}
template <class T>
bool allows(const Key&, const T&) {
  return true;
}

/// Returns a hint for 0.1 or 10 if only percentages are allowed.
std::string percent_hint(const Key& key, const std::string& text) {
  if (key.allowed_units() != std::vector{Length::Unit::percent}) return {};
  const std::string percent = percent_of_number(text);
  return percent.empty() ? "" : "write `" + percent + "`";
}

}  // namespace

template <class T, class Parse>
void Checker::read_parsed(const Slot& slot, const Node& node, Parse parse, T& target) {
  if (std::string hint = percent_hint(slot.key, node.text); !hint.empty())
    return wrong_type(slot, node, std::move(hint));
  const Parsed<T> parsed = parse(node.text);
  if (!parsed.value) {
    if (parsed.problem.empty()) return wrong_type(slot, node, parsed.hint);
    problems_.add(node.location, slot.dotted + ": " + parsed.problem, parsed.hint);
    return;
  }
  origins_[slot.dotted] = node.location;
  target = *parsed.value;
  if (!allows(slot.key, target)) return wrong_type(slot, node);
  check_limits(slot, node, magnitude(target));
}

void Checker::read_string(const Slot& slot, const Node& node, std::string& target) {
  if (slot.key.is_path()) return read_path(slot, node, target);
  origins_[slot.dotted] = node.location;
  target = node.text;
  const std::vector<std::string>& allowed = slot.key.allowed();
  if (allowed.empty() || std::find(allowed.begin(), allowed.end(), node.text) != allowed.end()) return;
  const std::string ours = ours_for(node.text, allowed);
  std::string hint = ours.empty() ? did_you_mean(node.text, allowed) : "write `" + ours + "`";
  if (hint.empty()) hint = beyond_ascii(node.text);
  problems_.add(node.location, slot.dotted + " must be " + either(allowed) + ", not " + shown(node.text), hint);
}

void Checker::read_path(const Slot& slot, const Node& node, std::string& target) {
  Parsed<std::string> path = parse_path(node.text, reading_.environment);
  if (!path.value) return problems_.add(node.location, slot.dotted + ": " + path.problem, path.hint);
  origins_[slot.dotted] = node.location;
  target = *std::move(path.value);
}

void Checker::check_limits(const Slot& slot, const Node& node, double value) {
  const Key::Limits& limits = slot.key.limits();
  const bool too_low = limits.low && (limits.low_is_open ? value <= *limits.low : value < *limits.low);
  const bool too_high = limits.high && (limits.high_is_open ? value >= *limits.high : value > *limits.high);
  if (!too_low && !too_high) return;
  problems_.add(node.location, slot.dotted + " must be " + limits_text(limits) + ", not " + printable(node.text));
}

void Checker::wrong_type(const Slot& slot, const Node& node, std::string hint) {
  if (hint.empty()) hint = beyond_ascii(node.text);
  const std::string given = node.kind == Node::Kind::null ? ", but has no value" : ", not " + description(node);
  problems_.add(node.location, slot.dotted + " must be " + expectation(slot.shown, slot.key) + given, std::move(hint));
}

}  // namespace gputrain::config
