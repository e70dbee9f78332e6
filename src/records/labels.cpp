#include "labels.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/printable.hpp"
#include "label_text.hpp"

namespace gputrain::records {
namespace {

using Label = nlohmann::ordered_json;

template <class Number>
std::optional<Number> parsed(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

bool is_less(const std::string& a, const std::string& b) {
  const auto left = parsed<int64_t>(a), right = parsed<int64_t>(b);
  if (left && right && *left != *right) return *left < *right;
  return left.has_value() == right.has_value() ? a < b : left.has_value();
}

/// Returns whether text is UTF-8; other text is neither written into config.json nor shown.
bool is_utf8(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

void check_utf8_label(const std::string& text, const Label& label) {
  if (!is_utf8(text))
    refuse_label("the label is not UTF-8: " + shown(label), "iconv -f LATIN1 -t UTF-8 FILE converts it");
}

}  // namespace

void refuse_label(const std::string& what, const std::string& hint) {
  throw Error(ExitCode::data, {.what = what, .where = {}, .hint = hint});
}

std::string shown(const Label& label) {
  return printable(label.dump(-1, ' ', false, Label::error_handler_t::replace).substr(0, 60));
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

const Label& value_of_column(const Label& record, const std::string& column, const std::string& hint) {
  const auto found = record.find(column);
  if (found != record.end() && found->is_null()) refuse_label("'" + column + "' is null");
  if (found != record.end()) return *found;
  std::string names;
  for (const auto& [name, value] : record.items()) names += (names.empty() ? "" : ", ") + name;
  refuse_label("no '" + column + "'; there are " + printable(names.substr(0, 200)), hint);
}

std::string class_named_in(const Label& label) {
  std::string name;
  if (label.is_string()) name = trimmed(label.get_ref<const std::string&>());
  check_utf8_label(name, label);
  if (label.is_boolean()) name = label.get<bool>() ? "true" : "false";
  if (label.is_number_integer()) name = label.dump();
  if (label.is_number_float() && label.get<double>() == std::floor(label.get<double>()) &&
      std::abs(label.get<double>()) < 1e15)
    name = std::to_string(static_cast<int64_t>(label.get<double>()));
  if (!name.empty()) return name;
  if (label.is_number())
    refuse_label("the label " + shown(label) + " is no class but a number", "task: {type: regression}");
  if (label.is_array())
    refuse_label("the label is a list: " + shown(label), "task: {type: multi_label_classification}");
  refuse_label(label.is_null() || label.is_string() ? "the label is empty" : "the label is no class: " + shown(label));
}

double number_in(const Label& label) {
  std::optional<double> number;
  if (label.is_number()) number = label.get<double>();
  if (label.is_string()) {
    std::string text = trimmed(label.get_ref<const std::string&>());
    if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.erase(0, 1);
    number = parsed<double>(text);
  }
  if (!number || !std::isfinite(static_cast<float>(*number))) refuse_label("the label is no number: " + shown(label));
  return *number;
}

std::vector<std::string> texts_of_list(const Label& record, const std::string& column) {
  const auto cell = record.find(column);
  const Label parsed_cell = cell != record.end() && cell->is_string()
                                ? parse_json<Label>(cell->get_ref<const std::string&>())
                                : Label();  // list in a table's cell
  const Label* found = parsed_cell.is_array() ? &parsed_cell : cell == record.end() ? nullptr : &*cell;
  if (found == nullptr || !found->is_array())
    refuse_label("no list in '" + column + "'", "data.text.columns: {words: NAME, tags: NAME} names other columns");
  std::vector<std::string> texts;
  for (const Label& value : *found) {
    if (!value.is_string() && !value.is_number_integer())
      refuse_label("the list in '" + column + "' has something else than texts");
    texts.push_back(value.is_string() ? value.get<std::string>() : value.dump());
    if (!is_utf8(texts.back()))
      refuse_label("'" + column + "' is not UTF-8: " + shown(value), "iconv -f LATIN1 -t UTF-8 FILE converts it");
  }
  return texts;
}

ClassNames::ClassNames(std::vector<std::string> names) : names_(std::move(names)) {
  std::ranges::sort(names_, is_less);
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
  for (const std::string& name : names_) by_text_.emplace_back(name, std::ssize(by_text_));
  std::ranges::sort(by_text_);
}

int64_t ClassNames::number_of(const std::string& name) const {
  const auto found = std::ranges::lower_bound(by_text_, name, {}, &std::pair<std::string, int64_t>::first);
  if (found != by_text_.end() && found->first == name) return found->second;
  std::string known;
  for (size_t i = 0; i < names_.size() && i < 10; ++i) known += (i == 0 ? "" : ", ") + names_[i].substr(0, 60);
  refuse_label("the class '" + printable(name.substr(0, 60)) +
               "' is not one of the training data: " + printable(known) + (names_.size() > 10 ? ", ..." : ""));
}

}  // namespace gputrain::records
