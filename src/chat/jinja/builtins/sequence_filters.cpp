#include "sequence_filters.hpp"

#include <algorithm>
#include <charconv>

#include "../render.hpp"
#include "../values/operators.hpp"
#include "../values/text.hpp"

namespace gputrain::chat {
namespace {

/// Returns the value at a path such as "function.name" or "0.name".
Value at_path(Render& render, Value value, const Value& path, const Value* otherwise = nullptr) {
  std::vector<Value> keys;
  if (path.string() == nullptr) {
    keys.push_back(path);
  } else {
    std::string_view rest = *path.string();
    for (size_t dot = 0; dot != std::string_view::npos; rest.remove_prefix(dot == rest.npos ? 0 : dot + 1)) {
      dot = rest.find('.');
      const std::string_view part = rest.substr(0, dot);
      int64_t number = 0;
      const auto read = std::from_chars(part.data(), part.data() + part.size(), number);
      const bool is_number =
          !part.empty() && part[0] != '-' && read.ec == std::errc() && read.ptr == part.data() + part.size();
      keys.push_back(is_number ? Value(number) : Value(part));
    }
  }
  for (const Value& key : keys) {
    render.budget.spend(1);
    value = render.item(value, key);
    if (otherwise != nullptr && value.is_undefined()) value = *otherwise;
  }
  return value;
}

Values items_or_none(Call& call) { return is_true(call.self) ? items_of(call.self, call.budget)->items : Values{}; }

Value filter_join(Call& call) {
  const std::string separator = call.has(0) ? text_of(call[0], call.budget) : "";
  std::string text;
  bool is_first = true;
  const auto source = items_of(call.self, call.budget);
  for (const Value& item : source->items) {
    call.budget.spend(1);
    if (!is_first) call.budget.append(text, separator);
    is_first = false;
    print(call.says(1) ? at_path(call.render, item, call[1]) : item, text, call.budget);
  }
  return Value(std::move(text));
}

Value filter_first(Call& call) {
  const Sequence* sequence = call.self.sequence();
  if (sequence != nullptr && sequence->kind == Sequence::Kind::iterator && sequence->taken < sequence->items.size())
    return sequence->items[sequence->taken++];
  const auto items = items_of(call.self, call.budget);
  return items->items.empty() ? Value::undefined("there is no first item, the sequence is empty")
                              : items->items.front();
}

Value filter_last(Call& call) {
  length_of(call.self);  // refuses what can only be read forwards
  const auto items = items_of(call.self, call.budget);
  return items->items.empty() ? Value::undefined("there is no last item, the sequence is empty") : items->items.back();
}

Value filter_reverse(Call& call) {
  Values items = items_of(call.self, call.budget)->items;
  std::reverse(items.begin(), items.end());
  if (call.self.string() == nullptr) return Value::iterator(std::move(items));
  std::string text;
  for (const Value& item : items) text += *item.string();
  return Value(std::move(text));
}

Value filter_items(Call& call) {
  Values pairs;
  if (call.self.is_undefined()) return Value::iterator({});
  if (call.self.dict() == nullptr) throw Problem("'items' needs a dict, not a " + type_name(call.self));
  for (const auto& [key, value] : call.self.dict()->entries) pairs.push_back(Value::tuple({key, value}));
  return Value::iterator(std::move(pairs));
}

/// Calls a filter or test that is named in the arguments after `skipped`, with the arguments that follow its name.
Value run_named(Call& call, size_t skipped, const Value& item, bool is_test) {
  const Value& named = call.rest.positional[skipped];
  const std::string name = named.string() != nullptr ? *named.string() : "";
  const Builtin* builtin = is_test ? find_test(name) : find_filter(name);
  if (builtin == nullptr)
    throw Problem(std::string("no ") + (is_test ? "test" : "filter") + " is called '" + name + "'");
  Arguments arguments = call.rest;
  const auto begin = arguments.positional.begin();
  arguments.positional.erase(begin, begin + static_cast<std::ptrdiff_t>(skipped) + 1);
  call.budget.spend(1);
  return run_builtin(*builtin, call.render, item, std::move(arguments));
}

Value filter_map(Call& call) {
  Values results;
  const auto named = [&](std::string_view name) -> const Value* {
    for (const auto& [key, value] : call.rest.named)
      if (key == name) return &value;
    return nullptr;
  };
  const Value *attribute = named("attribute"), *otherwise = named("default");
  const bool by_attribute = call.rest.positional.empty() && attribute != nullptr;
  if (call.rest.positional.empty() && !by_attribute) throw Problem("'map' needs a filter or attribute=");
  if (by_attribute && call.rest.named.size() > (otherwise != nullptr ? 2u : 1u))
    throw Problem("'map' by attribute takes no argument but 'default'");
  for (const Value& item : items_or_none(call))
    results.push_back(by_attribute ? at_path(call.render, item, *attribute, otherwise)
                                   : run_named(call, 0, item, false));
  return Value::iterator(std::move(results));
}

Value selected(Call& call, bool by_attribute, bool wanted) {
  const size_t skipped = by_attribute ? 1 : 0;
  if (call.rest.positional.size() < skipped) throw Problem("the name of an attribute is missing");
  Values results;
  for (const Value& item : items_or_none(call)) {
    const Value tested = by_attribute ? at_path(call.render, item, call.rest.positional[0]) : item;
    const bool holds = is_true(call.rest.positional.size() > skipped ? run_named(call, skipped, tested, true) : tested);
    if (holds == wanted) results.push_back(item);
  }
  return Value::iterator(std::move(results));
}

Value without_case(const Value& value) {
  return value.string() != nullptr ? Value(lower_cased(*value.string())) : value;
}

/// Indices in the order of `keys`; equal keys keep theirs.
std::vector<size_t> sorted_places(const Values& keys, bool is_reversed, Budget& budget) {
  std::vector<size_t> places(keys.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = i;
  std::stable_sort(places.begin(), places.end(), [&](size_t a, size_t b) {
    return (is_reversed ? order(keys[b], keys[a], "<", budget) : order(keys[a], keys[b], "<", budget)) < 0;
  });
  return places;
}

Value filter_dictsort(Call& call) {
  if (call.self.undefined() != nullptr) fail_undefined(*call.self.undefined());
  if (call.self.dict() == nullptr) throw Problem("'dictsort' needs a dict, not a " + type_name(call.self));
  const std::string by = call.has(1) ? text_of(call[1], call.budget) : "key";
  if (by != "key" && by != "value") throw Problem("'dictsort' sorts by 'key' or 'value'");
  const auto& entries = call.self.dict()->entries;
  Values keys, pairs;
  for (const auto& [key, value] : entries) {
    const Value& one = by == "key" ? key : value;
    keys.push_back(call.flag(0) ? one : without_case(one));
  }
  for (const size_t i : sorted_places(keys, call.flag(2), call.budget))
    pairs.push_back(Value::tuple({entries[i].first, entries[i].second}));
  return Value::list(std::move(pairs));
}

/// Returns the key by which an item is sorted or compared.
Value key_of(Call& call, const Value& item, size_t attribute, bool with_case) {
  const Value key = call.says(attribute) ? at_path(call.render, item, call[attribute]) : item;
  return with_case ? key : without_case(key);
}

Value filter_sort(Call& call) {
  const auto items = items_of(call.self, call.budget);
  if (call.has(2) && call[2].string() != nullptr && call[2].string()->find(',') != std::string::npos)
    throw Problem("'sort' by several attributes is not supported");
  Values keys, results;
  for (const Value& item : items->items) keys.push_back(key_of(call, item, 2, call.flag(1)));
  for (const size_t i : sorted_places(keys, call.flag(0), call.budget)) results.push_back(items->items[i]);
  return Value::list(std::move(results));
}

Value filter_unique(Call& call) {
  Values seen, results;
  const auto source = items_of(call.self, call.budget);
  for (const Value& item : source->items) {
    const Value key = key_of(call, item, 1, call.flag(0));
    check_hashable(key);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equal(key, other, call.budget); }))
      continue;
    seen.push_back(key);
    results.push_back(item);
  }
  return Value::iterator(std::move(results));
}

Value filter_sum(Call& call) {
  Value sum = call.value_or(1, Value(int64_t{0}));
  const auto source = items_of(call.self, call.budget);
  for (const Value& item : source->items)
    sum = arithmetic(Arithmetic::add, sum, call.says(0) ? at_path(call.render, item, call[0]) : item, call.budget);
  return sum;
}

Value extreme(Call& call, bool is_largest) {
  const auto items = items_of(call.self, call.budget);
  if (items->items.empty()) return Value::undefined("there is no item, the sequence is empty");
  const Value* best = nullptr;
  Value best_key;
  for (const Value& item : items->items) {
    const Value key = key_of(call, item, 1, call.flag(0));
    const int difference = best == nullptr ? 0 : order(key, best_key, is_largest ? ">" : "<", call.budget);
    if (best != nullptr && (is_largest ? difference <= 0 : difference >= 0)) continue;
    best = &item;
    best_key = key;
  }
  return *best;
}

}  // namespace

const std::vector<Builtin>& sequence_filters() {
  static const std::vector<Builtin> kFilters = {
      {"join", 0, {"d", "attribute"}, filter_join},
      {"first", 0, {}, filter_first},
      {"last", 0, {}, filter_last},
      {"reverse", 0, {}, filter_reverse},
      {"items", 0, {}, filter_items},
      {"map", 0, {}, filter_map, true},
      {"select", 0, {}, [](Call& call) { return selected(call, false, true); }, true},
      {"reject", 0, {}, [](Call& call) { return selected(call, false, false); }, true},
      {"selectattr", 0, {}, [](Call& call) { return selected(call, true, true); }, true},
      {"rejectattr", 0, {}, [](Call& call) { return selected(call, true, false); }, true},
      {"dictsort", 0, {"case_sensitive", "by", "reverse"}, filter_dictsort},
      {"sort", 0, {"reverse", "case_sensitive", "attribute"}, filter_sort},
      {"unique", 0, {"case_sensitive", "attribute"}, filter_unique},
      {"sum", 0, {"attribute", "start"}, filter_sum},
      {"min", 0, {"case_sensitive", "attribute"}, [](Call& call) { return extreme(call, false); }},
      {"max", 0, {"case_sensitive", "attribute"}, [](Call& call) { return extreme(call, true); }},
      {"length", 0, {}, [](Call& call) { return Value(static_cast<int64_t>(length_of(call.self))); }},
      {"list", 0, {}, [](Call& call) { return Value::list(items_of(call.self, call.budget)->items); }},
  };
  return kFilters;
}

}  // namespace gputrain::chat
