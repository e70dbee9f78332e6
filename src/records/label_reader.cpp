#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "label_text.hpp"
#include "labels.hpp"

namespace gputrain::records {
namespace {

using Label = nlohmann::ordered_json;
using Names = std::vector<std::string>;

bool is_in_brackets(std::string_view text) {
  constexpr std::string_view kOpen = "[({", kClosed = "])}";
  if (text.size() < 2) return false;
  const size_t kind = kOpen.find(text.front());
  return kind != std::string_view::npos && text.back() == kClosed[kind];
}

/// Parses the JSON list in a cell, or one with single quotes, as Python prints lists and sets. Null: none.
Label list_in(const std::string& text) {
  std::string json = text;
  json.front() = '[';
  json.back() = ']';
  Label list = parse_json<Label>(json);
  if (list.is_discarded() && text.find('"') == std::string::npos) {
    std::ranges::replace(json, '\'', '"');
    list = parse_json<Label>(json);
  }
  return list.is_array() ? list : Label();
}

/// Returns whether the name is a whole number, with or without a point and zeros.
bool is_whole_number(std::string_view name) {
  const size_t digits = name.starts_with('-') ? 1 : 0;
  const size_t point = std::min(name.find('.'), name.size());
  const auto are_all = [](std::string_view text, std::string_view of) {
    return !text.empty() && text.find_first_not_of(of) == std::string_view::npos;
  };
  return are_all(name.substr(digits, point - std::min(digits, point)), "0123456789") &&
         (point == name.size() || are_all(name.substr(point + 1), "0"));
}

std::string without_point(const std::string& name) { return name.substr(0, name.find('.')); }

/// Returns the name in lower case, with one space for several.
std::string folded(const std::string& name) {
  std::string text;
  for (const char c : lower_case(name)) {
    const bool is_space = c == ' ' || c == '\t';
    if (!is_space || (!text.empty() && text.back() != ' ')) text += is_space ? ' ' : c;
  }
  return text;
}

}  // namespace

std::optional<bool> flag_in(std::string_view name) {
  const std::string lower = lower_case(trimmed(std::string(name)));
  if (lower == "true" || (is_whole_number(lower) && without_point(lower) == "1")) return true;
  if (lower == "false" || (is_whole_number(lower) && without_point(lower) == "0")) return false;
  return std::nullopt;
}

LabelReader::LabelReader(const std::vector<const Label*>& labels, bool are_sets, const Names& known)
    : are_sets_(are_sets), known_(known) {
  std::ranges::sort(known_);
  if (are_sets) {
    size_t strongest = 3;  // a bar has the first rank, then a semicolon, then a comma
    for (const Label* label : labels) {
      if (!label->is_string()) continue;
      const std::string text = trimmed(label->get_ref<const std::string&>());
      if (is_in_brackets(text) || is_known(text)) continue;
      for (size_t i = 0; i < strongest; ++i) {
        if (text.find("|;,"[i]) == std::string::npos) continue;
        strongest = i;
        separator_ = "|;,"[i];
        example_ = text;
      }
    }
    find_places(labels, known.size());
  }
  // Names of training data are numbers only if all of them are.
  const auto are_whole_numbers = [&](const Label* label) {
    try {
      return std::ranges::all_of(names_in(*label), is_whole_number);
    } catch (const Error&) {
      return true;  // reported where the label is read
    }
  };
  are_numbers_ = !known.empty() || std::ranges::all_of(labels, are_whole_numbers);
}

/// Finds lists with a place for each class: of 0 and 1 alone, of one length or with one of them twice.
void LabelReader::find_places(const std::vector<const Label*>& labels, size_t known) {
  size_t length = 0;
  bool have_one_length = true, has_twice = false;
  for (const Label* label : labels) {
    Names names;
    try {
      names = names_in(*label);
    } catch (const Error&) {
      continue;
    }
    size_t ones = 0;
    for (const std::string& name : names) {
      const auto flag = flag_in(name);
      if (!flag) return;
      if (*flag) ++ones;
    }
    has_twice = has_twice || ones > 1 || names.size() > ones + 1;
    have_one_length = have_one_length && (length == 0 || names.size() == length);
    length = std::max(length, names.size());
  }
  if (length < 2 || !(have_one_length || has_twice)) return;
  if (known > 0 && known != length && !has_twice) return;  // names of classes that are numbers
  if (known > 0) length = known;
  for (size_t place = 0; place < length; ++place) places_.push_back(std::to_string(place));
}

bool LabelReader::is_known(const std::string& name) const { return std::ranges::binary_search(known_, name); }

std::string LabelReader::as_known(std::string name) const {
  if (!are_numbers_ || is_known(name) || !is_whole_number(name)) return name;
  std::string number = without_point(name);
  return known_.empty() || is_known(number) ? number : name;
}

Names LabelReader::classes_in(const Label& label) const {
  Names names = names_in(label);
  if (places_.empty()) {
    for (std::string& name : names) name = as_known(std::move(name));
    return names;
  }
  if (names.size() != places_.size())
    refuse_label("the label has " + counted(std::ssize(names), "place") + " instead of " +
                 std::to_string(places_.size()) + ": " + shown(label));
  Names classes;
  for (size_t i = 0; i < names.size(); ++i)
    if (flag_in(names[i]).value_or(false)) classes.push_back(places_[i]);
  return classes;
}

Names LabelReader::names_in(const Label& label) const {
  if (!are_sets_) return {class_named_in(label)};
  if (label.is_string()) return names_in_text(label);
  if (!label.is_array()) return {class_named_in(label)};
  Names names;
  for (const Label& each : label) names.push_back(class_named_in(each));
  return names;
}

Names LabelReader::names_in_text(const Label& label) const {
  const std::string text = trimmed(label.get<std::string>());
  if (text.empty()) return {};
  Names names;
  if (is_in_brackets(text)) {
    const Label list = list_in(text);
    if (list.is_null())
      refuse_label("the label is in brackets, but no JSON list: " + shown(label), "write sets as joy|surprise");
    for (const Label& each : list) names.push_back(class_named_in(each));
    return names;
  }
  if (is_known(text)) return {text};
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(separator_, begin), text.size());
    const std::string name = trimmed(text.substr(begin, end - begin));
    if (name.empty()) refuse_label("a class without a name: " + shown(label), "write sets as joy|surprise");
    names.push_back(class_named_in(name));
    begin = end + 1;
  }
  return names;
}

void LabelReader::warn(const std::string& where) const {
  if (example_.empty() || separator_ == '|') return;
  log::warning(where + ": " + (separator_ == ',' ? "commas" : "semicolons") + " separate the classes of a set, as in " +
               shown(example_) + "; where they are part of a name, write sets as joy|surprise, or as lists");
}

namespace {

/// Returns the labels of those records that have them.
std::vector<const Label*> labels_of(const std::vector<const Label*>& records, const std::string& column) {
  std::vector<const Label*> labels;
  for (const Label* record : records) {
    const auto label = record->find(column);
    if (label != record->end() && !label->is_null()) labels.push_back(&*label);
  }
  return labels;
}

}  // namespace

RecordClasses::RecordClasses(const std::vector<const Label*>& records, Names columns, bool are_sets, const Names& known,
                             std::string hint)
    : columns_(std::move(columns)),
      are_sets_(are_sets),
      hint_(std::move(hint)),
      reader_(columns_.size() == 1 ? labels_of(records, columns_[0]) : std::vector<const Label*>(), are_sets, known) {}

Names RecordClasses::fixed() const { return columns_.size() == 1 ? reader_.places() : columns_; }

Names RecordClasses::in(const Label& record) const {
  if (columns_.size() == 1) return reader_.classes_in(value_of_column(record, columns_[0], hint_));
  Names classes = of_columns(record);
  if (!are_sets_ && classes.size() != 1)
    refuse_label(std::to_string(classes.size()) + " of the columns of classes are 1, and a record has one class",
                 "task: {type: multi_label_classification}; for numbers {type: regression}");
  return classes;
}

Names RecordClasses::of_columns(const Label& record) const {
  Names classes;
  for (const std::string& column : columns_) {
    const Label& value = value_of_column(record, column, hint_);
    const bool is_empty = value.is_string() && trimmed(value.get_ref<const std::string&>()).empty();
    const auto flag = is_empty ? std::nullopt : flag_in(class_named_in(value));
    if (!flag) refuse_label("'" + column + "' is neither 0 nor 1, true nor false: " + shown(value));
    if (*flag) classes.push_back(column);
  }
  return classes;
}

void warn_of_similar(const Names& classes, const std::string& where) {
  std::map<std::string, const std::string*> seen;
  for (const std::string& name : classes) {
    const auto [other, is_new] = seen.emplace(folded(name), &name);
    if (!is_new)
      log::warning(where + ": the classes '" + printable(*other->second) + "' and '" + printable(name) +
                   "' differ only in case or spaces");
  }
}

}  // namespace gputrain::records
