#include "scalar.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

namespace gputrain::config {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

size_t skip_digits(std::string_view text, size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

std::string_view without_sign(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return text;
}

/// Returns 16 for "0x1f", 8 for "0o17", else 10.
int base_of(std::string_view text) {
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'o')) {
    const bool hex = text[1] == 'x';
    const auto fits = [hex](char c) {
      return hex ? is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') : c >= '0' && c <= '7';
    };
    if (std::all_of(text.begin() + 2, text.end(), fits)) return hex ? 16 : 8;
  }
  return 10;
}

bool is_integer(std::string_view text) {
  text = without_sign(text);
  if (text.empty()) return false;
  return base_of(text) != 10 || skip_digits(text, 0) == text.size();
}

bool is_float(std::string_view text) {
  text = without_sign(text);
  if (text == ".inf" || text == ".Inf" || text == ".INF" || text == ".nan" || text == ".NaN" || text == ".NAN") {
    return true;
  }
  const size_t whole = skip_digits(text, 0);
  size_t at = whole;
  size_t fraction = 0;
  if (at < text.size() && text[at] == '.') {
    const size_t end = skip_digits(text, at + 1);
    fraction = end - at - 1;
    at = end;
  }
  if (whole + fraction == 0) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    const size_t end = skip_digits(text, at);
    if (end == at) return false;
    at = end;
  }
  return at == text.size();
}

bool has_leading_zero(std::string_view text) {
  text = without_sign(text);
  return text.size() > 1 && text[0] == '0' && is_digit(text[1]);
}

template <class T>
Parsed<T> problem(std::string what, std::string hint = {}) {
  return {.problem = std::move(what), .hint = std::move(hint)};
}

Parsed<int64_t> digits_to_integer(std::string_view text) {
  const bool negative = text[0] == '-';
  const std::string_view digits = without_sign(text);
  const int base = base_of(digits);
  uint64_t magnitude = 0;
  const char* begin = digits.data() + (base == 10 ? 0 : 2);
  const auto [end, error] = std::from_chars(begin, digits.data() + digits.size(), magnitude, base);
  const uint64_t most = (uint64_t{1} << 63) - (negative ? 0 : 1);
  if (error != std::errc() || magnitude > most) return problem<int64_t>(shown(text) + " does not fit into 64 bits");
  return {.value = static_cast<int64_t>(negative ? ~magnitude + 1 : magnitude)};
}

}  // namespace

Plain classify(std::string_view plain) {
  if (plain.empty() || plain == "~" || plain == "null" || plain == "Null" || plain == "NULL") return Plain::null;
  for (const std::string_view word : {"true", "True", "TRUE", "false", "False", "FALSE"}) {
    if (plain == word) return Plain::boolean;
  }
  if (is_integer(plain)) return Plain::integer;
  if (is_float(plain)) return Plain::number;
  return Plain::text;
}

Parsed<int64_t> parse_integer(std::string_view text) {
  const Plain plain = classify(text);
  if (plain == Plain::integer) {
    if (has_leading_zero(text)) {
      return problem<int64_t>(shown(text) + " starts with a zero, which some read as octal",
                              "leave the zero out, or write 0o17 for octal");
    }
    return digits_to_integer(text);
  }
  if (plain == Plain::number) {
    const Parsed<double> number = parse_number(text);
    if (number.value && std::trunc(*number.value) == *number.value && std::fabs(*number.value) < 9e15) {
      return problem<int64_t>(shown(text) + " is written as a float",
                              "write `" + std::to_string(static_cast<int64_t>(*number.value)) + "`");
    }
  }
  return {};
}

Parsed<double> parse_number(std::string_view text) {
  const Plain plain = classify(text);
  if (plain == Plain::integer) {
    if (has_leading_zero(text)) return problem<double>(shown(text) + " starts with a zero", "leave the zero out");
    if (base_of(without_sign(text)) != 10) {
      const Parsed<int64_t> integer = digits_to_integer(text);
      if (!integer.value) return problem<double>(integer.problem);
      return {.value = static_cast<double>(*integer.value)};
    }
  } else if (plain != Plain::number) {
    return {};
  }
  if (text[0] == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    return problem<double>(shown(text) + " is beyond what a 64-bit float can hold");
  }
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return problem<double>(shown(text) + " is not a finite number");
  }
  return {.value = value};
}

std::string number_text(double value) {
  // The ranges of Python's repr(): 0.0001 but 1e-5, 256000 but 1e16.
  const double size = std::fabs(value);
  const bool is_fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                          is_fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer.data(), end);
  if (text.find('.') != std::string::npos) return text;
  // With the dot, YAML 1.1 readers do not read 1e-05 as text, and people do not read 256.0 as a count.
  const size_t exponent = std::min(text.find('e'), text.size());
  return text.insert(exponent, ".0");
}

std::string plain_number(double value) {
  std::string text = number_text(value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

}  // namespace gputrain::config
