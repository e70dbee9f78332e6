#include <algorithm>
#include <optional>

#include "../values/operators.hpp"
#include "../values/strings.hpp"
#include "../values/text.hpp"
#include "builtin.hpp"

namespace gputrain::chat {
namespace {

const std::string& object_string(const Call& call) { return *call.self.string(); }

Value method_strip(Call& call, Side side) {
  const auto points = call.says(0) ? std::optional<std::string_view>(call.string(0)) : std::nullopt;
  if (points) call.budget.spend_search(object_string(call), *points);
  return Value(stripped(object_string(call), side, points));
}

Value method_split(Call& call, bool from_end) {
  const auto separator = call.says(0) ? std::optional<std::string_view>(call.string(0)) : std::nullopt;
  const int64_t most = call.whole_or(1, -1);
  return Value::list(from_end ? split_from_end(object_string(call), separator, most, call.budget)
                              : split(object_string(call), separator, most, call.budget));
}

/// Returns whether `matches` for the argument, or for one of a tuple.
Value any_affix(Call& call, bool (*matches)(std::string_view text, std::string_view affix)) {
  const Sequence* affixes = call[0].sequence();
  if (affixes == nullptr) return Value(matches(object_string(call), call.string(0)));
  for (const Value& affix : affixes->items)
    if (affix.string() != nullptr && matches(object_string(call), *affix.string())) return Value(true);
  return Value(false);
}

/// Returns the place of the argument, in characters; -1 if it is not there.
int64_t place_of(Call& call, bool is_last = false) {
  const std::string &text = object_string(call), &part = call.string(0);
  call.budget.spend_search(text, part);
  const size_t at = is_last ? text.rfind(part) : text.find(part);
  return at == std::string::npos ? -1 : static_cast<int64_t>(count_points(std::string_view(text).substr(0, at)));
}

Value method_index(Call& call) {
  const int64_t place = place_of(call);
  if (place < 0) throw Problem("'index' does not find the string");
  return Value(place);
}

Value method_count(Call& call) {
  const std::string &text = object_string(call), &part = call.string(0);
  call.budget.spend_search(text, part);
  if (part.empty()) return Value(static_cast<int64_t>(count_points(text)) + 1);
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return Value(count);
}

Value method_join(Call& call) {
  std::string text;
  bool is_first = true;
  const auto source = items_of(call[0], call.budget);
  for (const Value& item : source->items) {
    if (item.string() == nullptr) throw Problem("'join' joins strings, and one is a " + type_name(item));
    call.budget.spend(1);
    if (!is_first) call.budget.append(text, object_string(call));
    is_first = false;
    call.budget.append(text, *item.string());
  }
  return Value(std::move(text));
}

Value method_lines(Call& call) {
  Values lines;
  for (const std::string_view line : lines_of(object_string(call), call.flag(0))) lines.emplace_back(line);
  return Value::list(std::move(lines));
}

Value without_affix(Call& call, bool is_prefix) {
  std::string_view text = object_string(call);
  const std::string& affix = call.string(0);
  if (is_prefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!is_prefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return Value(text);
}

Value all_points(Call& call, bool (*holds)(int32_t point)) {
  const std::string& text = object_string(call);
  for (size_t at = 0; at < text.size();)
    if (!holds(next_point(text, at))) return Value(false);
  return Value(!text.empty());
}

const std::vector<Builtin>& string_methods() {
  static const std::vector<Builtin> kMethods = {
      {"upper", 0, {}, [](Call& call) { return Value(upper_cased(object_string(call))); }},
      {"lower", 0, {}, [](Call& call) { return Value(lower_cased(object_string(call))); }},
      {"capitalize", 0, {}, [](Call& call) { return Value(capitalized(object_string(call))); }},
      {"title", 0, {}, [](Call& call) { return Value(title_cased(object_string(call))); }},
      {"strip", 0, {"chars"}, [](Call& call) { return method_strip(call, Side::both); }},
      {"lstrip", 0, {"chars"}, [](Call& call) { return method_strip(call, Side::left); }},
      {"rstrip", 0, {"chars"}, [](Call& call) { return method_strip(call, Side::right); }},
      {"split", 0, {"sep", "maxsplit"}, [](Call& call) { return method_split(call, false); }},
      {"rsplit", 0, {"sep", "maxsplit"}, [](Call& call) { return method_split(call, true); }},
      {"splitlines", 0, {"keepends"}, method_lines},
      {"startswith",
       1,
       {"prefix"},
       [](Call& call) {
         return any_affix(call, [](std::string_view text, std::string_view affix) { return text.starts_with(affix); });
       }},
      {"endswith",
       1,
       {"suffix"},
       [](Call& call) {
         return any_affix(call, [](std::string_view text, std::string_view affix) { return text.ends_with(affix); });
       }},
      {"find", 1, {"sub"}, [](Call& call) { return Value(place_of(call)); }},
      {"rfind", 1, {"sub"}, [](Call& call) { return Value(place_of(call, true)); }},
      {"index", 1, {"sub"}, method_index},
      {"count", 1, {"sub"}, method_count},
      {"replace",
       2,
       {"old", "new", "count"},
       [](Call& call) {
         return Value(replaced(object_string(call), call.string(0), call.string(1), call.whole_or(2, -1), call.budget));
       }},
      {"join", 1, {"iterable"}, method_join},
      {"removeprefix", 1, {"prefix"}, [](Call& call) { return without_affix(call, true); }},
      {"removesuffix", 1, {"suffix"}, [](Call& call) { return without_affix(call, false); }},
      {"isspace", 0, {}, [](Call& call) { return all_points(call, is_space); }},
      {"isdigit", 0, {}, [](Call& call) { return all_points(call, is_digit); }},
      {"isalpha", 0, {}, [](Call& call) { return all_points(call, is_letter); }},
  };
  return kMethods;
}

/// Makes a view of a dict; `show` returns its item for an entry.
template <class Show>
Value dict_view(Call& call, std::string_view name, const Show& show) {
  Values shown;
  for (const auto& entry : call.self.dict()->entries) shown.push_back(show(entry));
  return Value::view(name, std::move(shown));
}

Value method_get(Call& call) {
  check_hashable(call[0]);
  call.budget.spend(call.self.dict()->entries.size() / 16);
  const Value* found = call.self.dict()->find(call[0]);
  return found != nullptr ? *found : call.value_or(1, Value());
}

const std::vector<Builtin>& dict_methods() {
  static const std::vector<Builtin> kMethods = {
      {"get", 1, {"key", "default"}, method_get},
      {"items",
       0,
       {},
       [](Call& call) {
         return dict_view(call, "dict_items", [](const auto& entry) {
           return Value::tuple({entry.first, entry.second});
         });
       }},
      {"keys",
       0,
       {},
       [](Call& call) { return dict_view(call, "dict_keys", [](const auto& entry) { return entry.first; }); }},
      {"values",
       0,
       {},
       [](Call& call) { return dict_view(call, "dict_values", [](const auto& entry) { return entry.second; }); }},
      {"copy", 0, {}, [](Call& call) { return call.self; }},
  };
  return kMethods;
}

Value list_index(Call& call) {
  const Values& items = call.self.sequence()->items;
  for (size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], call[0], call.budget)) return Value(static_cast<int64_t>(i));
  throw Problem("'index' does not find the value");
}

Value list_count(Call& call) {
  const Values& items = call.self.sequence()->items;
  return Value(
      std::count_if(items.begin(), items.end(), [&](const Value& item) { return equal(item, call[0], call.budget); }));
}

const std::vector<Builtin>& list_methods() {
  static const std::vector<Builtin> kMethods = {{"index", 1, {"value"}, list_index},
                                                {"count", 1, {"value"}, list_count},
                                                {"copy", 0, {}, [](Call& call) { return call.self; }}};
  return kMethods;
}

Value loop_cycle(Call& call) {
  const Values& choices = call.rest.positional;
  if (choices.empty()) throw Problem("'cycle' needs values");
  return choices[call.self.loop()->index0 % choices.size()];
}

const std::vector<Builtin>& loop_methods() {
  static const std::vector<Builtin> kMethods = {{"cycle", 0, {}, loop_cycle, true}};
  return kMethods;
}

constexpr std::string_view kMissing[] = {
    "casefold",  "center",    "encode",    "expandtabs",  "format",     "format_map", "isalnum",      "isascii",
    "isdecimal", "islower",   "isnumeric", "isprintable", "istitle",    "isupper",    "isidentifier", "ljust",
    "maketrans", "partition", "rindex",    "rjust",       "rpartition", "swapcase",   "translate",    "zfill"};

template <class Names>
bool has_name(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

const Builtin* find_method(const Value& self, std::string_view name) {
  const std::vector<Builtin>* methods = nullptr;
  if (self.string() != nullptr) methods = &string_methods();
  if (self.dict() != nullptr) methods = &dict_methods();
  if (self.loop() != nullptr) methods = &loop_methods();
  const Sequence* sequence = self.sequence();
  if (sequence != nullptr && sequence->is_indexed()) methods = &list_methods();
  if (methods == nullptr) return nullptr;
  for (const Builtin& method : *methods)
    if (method.name == name) return &method;
  const bool is_missing = (self.string() != nullptr && has_name(kMissing, name)) ||
                          (self.dict() != nullptr && name == "fromkeys") ||
                          (self.loop() != nullptr && name == "changed");
  if (is_missing) throw Problem("the method '" + std::string(name) + "' is not supported");
  return nullptr;
}

bool is_mutator(const Value& self, std::string_view name) {
  constexpr std::string_view kOfList[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  constexpr std::string_view kOfDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const Sequence* sequence = self.sequence();
  return (sequence != nullptr && sequence->kind == Sequence::Kind::list && has_name(kOfList, name)) ||
         (self.dict() != nullptr && has_name(kOfDict, name));
}

std::optional<Value> loop_attribute(const Loop& loop, std::string_view name) {
  const auto size = static_cast<int64_t>(loop.items->items.size()), index0 = static_cast<int64_t>(loop.index0);
  if (name == "index") return Value(index0 + 1);
  if (name == "index0") return Value(index0);
  if (name == "revindex") return Value(size - index0);
  if (name == "revindex0") return Value(size - index0 - 1);
  if (name == "first") return Value(index0 == 0);
  if (name == "last") return Value(index0 + 1 == size);
  if (name == "length") return Value(size);
  if (name == "depth") return Value(int64_t{1});
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem")
    return index0 > 0 ? loop.items->items[loop.index0 - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return index0 + 1 < size ? loop.items->items[loop.index0 + 1] : Value::undefined("there is no next item");
  return std::nullopt;
}

}  // namespace gputrain::chat
