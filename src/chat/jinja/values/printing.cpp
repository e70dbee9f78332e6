#include <algorithm>
#include <cmath>

#include "operators.hpp"
#include "text.hpp"

namespace gputrain::chat {
namespace {

template <class Entries, class PrintEntry>
void print_entries(const Entries& entries, std::string_view open, std::string_view close, std::string& out,
                   Budget& budget, const PrintEntry& print_entry) {
  budget.append(out, open);
  bool is_first = true;
  for (const auto& entry : entries) {
    budget.spend(1);
    if (!is_first) budget.append(out, ", ");
    is_first = false;
    print_entry(entry);
  }
  budget.append(out, close);
}

void print_sequence(const Sequence& sequence, std::string& out, Budget& budget) {
  if (sequence.kind == Sequence::Kind::range || sequence.kind == Sequence::Kind::iterator)
    return budget.append(out, sequence.label);
  const bool is_view = sequence.kind == Sequence::Kind::view, is_tuple = sequence.kind == Sequence::Kind::tuple;
  const std::string open = is_view ? sequence.label + "([" : is_tuple ? "(" : "[";
  const std::string_view close = is_view ? "])" : !is_tuple ? "]" : sequence.items.size() == 1 ? ",)" : ")";
  print_entries(sequence.items, open, close, out, budget, [&](const Value& item) { print_repr(item, out, budget); });
}

/// Writes JSON with the indentation of json.dumps.
class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  std::string text() && { return std::move(text_); }

  void write(const Value& value) {
    budget_.spend(1);
    if (const std::string* string = value.string()) {
      budget_.append(text_, json_quoted(*string, style_.ascii_only));
    } else if (const Dict* dict = value.dict()) {
      write_dict(*dict);
    } else if (const Sequence* sequence = value.sequence();
               sequence != nullptr &&
               (sequence->kind == Sequence::Kind::list || sequence->kind == Sequence::Kind::tuple)) {
      write_all('[', ']', sequence->items, [&](const Value& item) { write(item); });
    } else {
      budget_.append(text_, scalar(value));
    }
  }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.boolean() != nullptr) return *value.boolean() ? "true" : "false";
    if (value.whole() != nullptr) return std::to_string(*value.whole());
    if (value.real() == nullptr) throw Problem("a value of type " + type_name(value) + " cannot be written as JSON");
    if (std::isnan(*value.real())) return "NaN";
    if (std::isinf(*value.real())) return *value.real() < 0 ? "-Infinity" : "Infinity";
    return number_text(*value.real());
  }

  void write_dict(const Dict& dict) {
    Dict::Entries entries = dict.entries;
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [this](const auto& a, const auto& b) { return order(a.first, b.first, "<", budget_) < 0; });
    write_all('{', '}', entries, [&](const auto& entry) {
      const std::string key = entry.first.string() != nullptr ? *entry.first.string() : scalar(entry.first);
      budget_.append(text_, json_quoted(key, style_.ascii_only));
      budget_.append(text_, style_.key_separator);
      write(entry.second);
    });
  }

  template <class Entries, class WriteEntry>
  void write_all(char open, char close, const Entries& entries, const WriteEntry& write_entry) {
    text_ += open;
    ++level_;
    bool is_first = true;
    for (const auto& entry : entries) {
      if (!is_first) budget_.append(text_, style_.item_separator);
      is_first = false;
      begin_line();
      write_entry(entry);
    }
    --level_;
    if (!entries.empty()) begin_line();
    text_ += close;
  }

  void begin_line() {
    if (!style_.indent) return;
    budget_.append(text_, "\n");
    for (size_t i = 0; i < level_; ++i) budget_.append(text_, *style_.indent);
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string text_;
  size_t level_ = 0;
};

}  // namespace

void print_repr(const Value& value, std::string& out, Budget& budget) {
  budget.spend(1);
  if (const std::string* string = value.string()) return budget.append(out, repr_of(*string));
  if (value.is_undefined()) return budget.append(out, "Undefined");
  if (const Dict* dict = value.dict())
    return print_entries(dict->entries, "{", "}", out, budget, [&](const auto& entry) {
      print_repr(entry.first, out, budget);
      budget.append(out, ": ");
      print_repr(entry.second, out, budget);
    });
  print(value, out, budget);
}

void print(const Value& value, std::string& out, Budget& budget) {
  budget.spend(1);
  if (const std::string* string = value.string()) return budget.append(out, *string);
  if (value.is_undefined()) return;
  if (value.is_none()) return budget.append(out, "None");
  if (value.boolean() != nullptr) return budget.append(out, *value.boolean() ? "True" : "False");
  if (value.whole() != nullptr) return budget.append(out, std::to_string(*value.whole()));
  if (value.real() != nullptr) return budget.append(out, number_text(*value.real()));
  if (value.sequence() != nullptr) return print_sequence(*value.sequence(), out, budget);
  if (value.dict() != nullptr) return print_repr(value, out, budget);
  throw Problem("a " + type_name(value) + " cannot be printed");
}

std::string text_of(const Value& value, Budget& budget) {
  std::string text;
  print(value, text, budget);
  return text;
}

std::string json_text(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value);
  return std::move(writer).text();
}

}  // namespace gputrain::chat
