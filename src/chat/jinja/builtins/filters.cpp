#include <algorithm>
#include <charconv>
#include <cmath>

#include "../render.hpp"
#include "../values/operators.hpp"
#include "../values/strings.hpp"
#include "../values/text.hpp"
#include "builtin.hpp"
#include "gputrain/core/lower_case.hpp"
#include "sequence_filters.hpp"

namespace gputrain::chat {
namespace {

Value filter_default(Call& call) {
  const bool is_missing = call.self.is_undefined() || (call.flag(1) && !is_true(call.self));
  return is_missing ? call.value_or(0, Value("")) : call.self;
}

Value filter_trim(Call& call) {
  const std::string text = call.self_text();
  if (call.says(0)) call.budget.spend_search(text, call.string(0));
  return Value(
      stripped(text, Side::both, call.says(0) ? std::optional<std::string_view>(call.string(0)) : std::nullopt));
}

Value filter_replace(Call& call) {
  const int64_t count = call.says(2) ? call.whole_or(2, -1) : -1;
  return Value(
      replaced(call.self_text(), text_of(call[0], call.budget), text_of(call[1], call.budget), count, call.budget));
}

/// Begins each word with a capital, after white space or an opening bracket or dash.
Value filter_title(Call& call) {
  const std::string text = call.self_text();
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const auto divides = [&](size_t position, size_t& next) {
      next = position;
      const int32_t point = next_point(text, next);
      return is_space(point) ||
             (point < 0x80 && std::string_view("-({[<").find(static_cast<char>(point)) != std::string::npos);
    };
    const size_t begin = at;
    size_t next = at;
    const bool is_divider = divides(at, next);
    const size_t first = next - at;
    for (at = next; at < text.size() && divides(at, next) == is_divider;) at = next;
    call.budget.append(result, upper_cased(std::string_view(text).substr(begin, first)));
    call.budget.append(result, lower_cased(std::string_view(text).substr(begin + first, at - begin - first)));
  }
  return Value(std::move(result));
}

Value filter_indent(Call& call) {
  std::string indention;
  if (call.has(0) && call[0].string() != nullptr) {
    indention = *call[0].string();
  } else {
    const int64_t width = call.whole_or(0, 4);
    if (width > 10'000) throw Problem("'indent' indents by more than 10000");
    indention.assign(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
  }
  if (call.self.string() == nullptr) throw Problem("'indent' needs a string");
  const std::string text = *call.self.string() + "\n";
  std::string result = call.flag(1) ? indention : "";
  bool is_first = true;
  for (const std::string_view line : lines_of(text, false)) {
    if (!is_first) call.budget.append(result, "\n");
    if (!is_first && (call.flag(2) || !line.empty())) call.budget.append(result, indention);
    call.budget.append(result, line);
    is_first = false;
  }
  return Value(std::move(result));
}

/// Returns the digits without white space around and underscores between them.
std::string number_digits(std::string_view text) {
  text = stripped(text, Side::both);
  if (text.starts_with('+')) text.remove_prefix(1);
  std::string digits;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool is_between = at > 0 && at + 1 < text.size() && text[at - 1] != '_' && text[at + 1] != '_';
    if (text[at] != '_' || !is_between) digits += text[at];
  }
  return digits;
}

std::optional<double> parsed_real(std::string_view text) {
  const std::string digits = number_digits(text);
  double number = 0;
  const auto end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, number);
  return read.ec == std::errc() && read.ptr == end ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> parsed_whole(std::string_view text, int64_t base) {
  if (base < 2 || base > 36) throw Problem("'int' needs a base from 2 to 36");
  std::string digits = number_digits(text);
  const std::string_view prefix = base == 16 ? "0x" : base == 8 ? "0o" : "0b";
  if ((base == 16 || base == 8 || base == 2) && lower_case(digits.substr(0, 2)) == prefix) digits.erase(0, 2);
  int64_t number = 0;
  const auto end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, number, static_cast<int>(base));
  if (read.ec == std::errc::result_out_of_range) throw Problem("the number " + digits.substr(0, 40) + " is too large");
  return read.ec == std::errc() && read.ptr == end ? std::optional(number) : std::nullopt;
}

Value truncated(double number) {
  if (std::isinf(number) || std::abs(number) >= 9.2e18) throw Problem("a number is too large for 'int'");
  return Value(static_cast<int64_t>(number));
}

Value filter_int(Call& call) {
  if (call.self.undefined() != nullptr) fail_undefined(*call.self.undefined());
  if (const auto whole = call.self.index()) return Value(*whole);
  std::optional<double> real;
  if (call.self.real() != nullptr) real = *call.self.real();
  if (const std::string* text = call.self.string()) {
    if (const auto whole = parsed_whole(*text, call.whole_or(1, 10))) return Value(*whole);
    real = parsed_real(*text);
    if (real && std::isinf(*real)) real = std::nullopt;
  }
  return real && !std::isnan(*real) ? truncated(*real) : call.value_or(0, Value(int64_t{0}));
}

Value filter_float(Call& call) {
  if (call.self.undefined() != nullptr) fail_undefined(*call.self.undefined());
  if (const auto whole = call.self.index()) return Value(static_cast<double>(*whole));
  if (call.self.real() != nullptr) return call.self;
  if (call.self.string() != nullptr)
    if (const auto real = parsed_real(*call.self.string())) return Value(*real);
  return call.value_or(0, Value(0.0));
}

Value filter_tojson(Call& call) {
  JsonStyle style{.ascii_only = call.flag(0), .sort_keys = call.flag(3)};
  if (call.says(1)) {
    const int64_t width = call[1].string() != nullptr ? 0 : std::max<int64_t>(0, call.whole_or(1, 0));
    if (width > 1'000) throw Problem("'tojson' indents by more than 1000");
    style.indent = call[1].string() != nullptr ? *call[1].string() : std::string(static_cast<size_t>(width), ' ');
    style.item_separator = ",";
  }
  if (call.says(2)) {
    const auto separators = items_of(call[2], call.budget);
    if (separators->items.size() != 2) throw Problem("'tojson' needs two separators");
    style.item_separator = text_of(separators->items[0], call.budget);
    style.key_separator = text_of(separators->items[1], call.budget);
  }
  return Value(json_text(call.self, style, call.budget));
}

const std::vector<Builtin>& text_filters() {
  static const std::vector<Builtin> kFilters = {
      {"default", 0, {"default_value", "boolean"}, filter_default},
      {"trim", 0, {"chars"}, filter_trim},
      {"replace", 2, {"old", "new", "count"}, filter_replace},
      {"title", 0, {}, filter_title},
      {"indent", 0, {"width", "first", "blank"}, filter_indent},
      {"int", 0, {"default", "base"}, filter_int},
      {"float", 0, {"default"}, filter_float},
      {"tojson", 0, {"ensure_ascii", "indent", "separators", "sort_keys"}, filter_tojson},
      {"upper", 0, {}, [](Call& call) { return Value(upper_cased(call.self_text())); }},
      {"lower", 0, {}, [](Call& call) { return Value(lower_cased(call.self_text())); }},
      {"capitalize", 0, {}, [](Call& call) { return Value(capitalized(call.self_text())); }},
      {"string", 0, {}, [](Call& call) { return call.self.text() ? call.self : Value(call.self_text()); }},
      {"safe", 0, {}, [](Call& call) { return Value(call.self_text(), true); }},
      {"escape", 0, {}, [](Call& call) { return escaped(call.self, call.budget); }},
  };
  return kFilters;
}

}  // namespace

const Builtin* find_filter(std::string_view name) {
  if (name == "d") name = "default";
  if (name == "e") name = "escape";
  if (name == "count") name = "length";
  for (const auto* filters : {&text_filters(), &sequence_filters()})
    for (const Builtin& filter : *filters)
      if (filter.name == name) return &filter;
  return nullptr;
}

}  // namespace gputrain::chat
