#include "value.hpp"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "text.hpp"

namespace gputrain::chat {
namespace {

constexpr size_t kDeepestValue = 100;

size_t depth_of(const Value& value) {
  if (value.sequence() != nullptr) return value.sequence()->depth;
  return value.dict() != nullptr ? value.dict()->depth : 0;
}

void bound(size_t depth) {
  if (depth > kDeepestValue) throw Problem("values are nested more than " + std::to_string(kDeepestValue) + " deep");
}

bool is_key(const Value& value) {
  return value.is_none() || value.boolean() != nullptr || value.whole() != nullptr || value.real() != nullptr ||
         value.string() != nullptr;
}

bool same_key(const Value& a, const Value& b) {
  if (a.string() != nullptr && b.string() != nullptr) return *a.string() == *b.string();
  const auto x = a.index(), y = b.index();
  if (x && y) return *x == *y;
  if (a.real() != nullptr && b.real() != nullptr) return *a.real() == *b.real();
  if (a.real() != nullptr && y) return *a.real() == static_cast<double>(*y);
  if (b.real() != nullptr && x) return *b.real() == static_cast<double>(*x);
  return a.is_none() && b.is_none();
}

Value number_of(const nlohmann::ordered_json& json) {
  if (json.is_number_float()) return Value(json.get<double>());
  const uint64_t largest = std::numeric_limits<int64_t>::max();
  if (json.is_number_unsigned() && json.get<uint64_t>() > largest)
    throw Problem("the number " + json.dump() + " is too large");
  return Value(json.get<int64_t>());
}

Value text_of(const std::string& text) {
  if (!is_utf8(text)) throw Problem("a text among the variables is not UTF-8");
  return Value(text);
}

Value value_at(const nlohmann::ordered_json& json, size_t depth) {
  bound(depth);
  if (json.is_string()) return text_of(json.get_ref<const std::string&>());
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number()) return number_of(json);
  if (json.is_array()) {
    Values items;
    items.reserve(json.size());
    for (const auto& item : json) items.push_back(value_at(item, depth + 1));
    return Value::list(std::move(items));
  }
  if (!json.is_object()) return Value();
  Dict::Entries entries;
  for (const auto& [key, item] : json.items()) entries.emplace_back(text_of(key), value_at(item, depth + 1));
  auto dict = std::make_shared<Dict>();  // JSON's keys differ already
  for (const auto& entry : entries) dict->depth = std::max(dict->depth, depth_of(entry.second) + 1);
  dict->entries = std::move(entries);
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

}  // namespace

void Budget::spend(size_t steps) {
  if (steps > left_) {
    left_ = 0;
    throw Problem("the template does more than " + std::to_string(kSteps) + " steps: does it loop without end?");
  }
  left_ -= steps;
}

void Budget::append(std::string& text, std::string_view piece) {
  constexpr size_t kBytesPerStep = 64;
  if (piece.size() > kLongestText - text.size())
    throw Problem("a text gets longer than " + std::to_string(kLongestText >> 20) + " MiB");
  spend(piece.size() / kBytesPerStep);
  text += piece;
}

const Value* Namespace::find(std::string_view name) const {
  const auto found =
      std::find_if(attributes.begin(), attributes.end(), [&](const auto& entry) { return entry.first == name; });
  return found == attributes.end() ? nullptr : &found->second;
}

void Namespace::set(const std::string& name, Value value) {
  if (name.starts_with('_')) throw Problem("attributes of a namespace must not begin with '_', as " + name + " does");
  for (auto& [key, held] : attributes)
    if (key == name) {
      held = std::move(value);
      return;
    }
  attributes.emplace_back(name, std::move(value));
}

Value::Value(std::string text, bool is_safe) {
  const bool is_plain = is_ascii(text);
  data_ = Text{std::make_shared<const std::string>(std::move(text)), is_plain, is_safe};
}

Value Value::undefined(std::string message) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(message))});
}
Value Value::list(Values items) {
  return Value(std::make_shared<const Sequence>(Sequence::Kind::list, std::move(items)));
}
Value Value::tuple(Values items) {
  return Value(std::make_shared<const Sequence>(Sequence::Kind::tuple, std::move(items)));
}
Value Value::view(std::string_view name, Values items) {
  return Value(std::make_shared<const Sequence>(Sequence::Kind::view, std::move(items), std::string(name)));
}
Value Value::iterator(Values items) {
  return Value(std::make_shared<const Sequence>(Sequence::Kind::iterator, std::move(items), "<generator object>"));
}

std::optional<int64_t> Value::index() const {
  if (boolean() != nullptr) return *boolean() ? 1 : 0;
  return whole() != nullptr ? std::optional(*whole()) : std::nullopt;
}

Sequence::Sequence(Kind kind_, Values items_, std::string label_)
    : kind(kind_), items(std::move(items_)), label(std::move(label_)), depth(1) {
  for (const Value& item : items) depth = std::max(depth, depth_of(item) + 1);
  bound(depth);
}

Dict::Dict(Entries entries_) {
  for (auto& [key, value] : entries_) set(std::move(key), std::move(value));
}

void Dict::set(Value key, Value value) {
  if (!is_key(key)) throw Problem("a " + type_name(key) + " cannot be the key of a dict");
  depth = std::max(depth, depth_of(value) + 1);
  bound(depth);
  for (auto& [held_key, held] : entries)
    if (same_key(held_key, key)) {
      held = std::move(value);
      return;
    }
  entries.emplace_back(std::move(key), std::move(value));
}

const Value* Dict::find(const Value& key) const {
  for (const auto& [held_key, held] : entries)
    if (same_key(held_key, key)) return &held;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [held_key, held] : entries)
    if (held_key.string() != nullptr && *held_key.string() == key) return &held;
  return nullptr;
}

Value value_of(const nlohmann::ordered_json& json) { return value_at(json, 0); }

void check_hashable(const Value& value) {
  const bool is_list = value.sequence() != nullptr && value.sequence()->kind == Sequence::Kind::list;
  if (is_list || value.dict() != nullptr) throw Problem("a " + type_name(value) + " cannot be looked up by its value");
}

bool is_true(const Value& value) {
  if (value.boolean() != nullptr) return *value.boolean();
  if (value.whole() != nullptr) return *value.whole() != 0;
  if (value.real() != nullptr) return *value.real() != 0;
  if (value.string() != nullptr) return !value.string()->empty();
  if (const Sequence* sequence = value.sequence())
    return sequence->kind == Sequence::Kind::iterator || !sequence->items.empty();
  if (value.dict() != nullptr) return !value.dict()->entries.empty();
  return !value.is_none() && !value.is_undefined();
}

std::string type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.boolean() != nullptr) return "bool";
  if (value.whole() != nullptr) return "int";
  if (value.real() != nullptr) return "float";
  if (value.string() != nullptr) return "str";
  if (value.dict() != nullptr) return "dict";
  if (value.space() != nullptr) return "namespace";
  if (value.loop() != nullptr) return "loop";
  if (value.function() != nullptr) return "function";
  switch (value.sequence()->kind) {
    case Sequence::Kind::list:
      return "list";
    case Sequence::Kind::tuple:
      return "tuple";
    case Sequence::Kind::range:
      return "range";
    case Sequence::Kind::view:
      return value.sequence()->label;
    default:
      return "generator";
  }
}

void fail_undefined(const Undefined& undefined) { throw Problem(*undefined.message); }

}  // namespace gputrain::chat
