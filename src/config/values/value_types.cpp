#include "gputrain/config/value_types.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "../yaml/scalar.hpp"

namespace gputrain::config {
namespace {

constexpr double kLargest = 9e15;  // a double holds whole numbers up to here exactly

struct TimeUnit {
  char letter;
  double seconds;
};
constexpr std::array<TimeUnit, 4> kTimeUnits{{{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}}};

struct TokenUnit {
  char letter;
  double tokens;
};
constexpr std::array<TokenUnit, 4> kTokenUnits{{{'T', 1e12}, {'B', 1e9}, {'M', 1e6}, {'k', 1e3}}};

/// Removes a non-negative number from the front of `text` and returns it.
std::optional<double> take_number(std::string_view& text) {
  if (text.empty() || !((text[0] >= '0' && text[0] <= '9') || text[0] == '.')) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value > kLargest) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

/// Reads "1h30m": each unit at most once, from large to small.
std::optional<double> take_time(std::string_view text) {
  double seconds = 0;
  auto unit = kTimeUnits.begin();
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    const std::optional<double> count = take_number(text);
    if (!count || text.empty()) return std::nullopt;
    while (unit != kTimeUnits.end() && unit->letter != text[0]) ++unit;
    if (unit == kTimeUnits.end()) return std::nullopt;
    seconds += *count * unit->seconds;
    ++unit;
    text.remove_prefix(1);
  }
  if (seconds > kLargest) return std::nullopt;
  return seconds;
}

std::string time_text(double seconds) {
  if (std::trunc(seconds) != seconds || seconds < 0 || seconds > kLargest) return plain_number(seconds) + "s";
  if (seconds == 0) return "0s";
  std::string text;
  auto left = static_cast<int64_t>(seconds);
  for (const TimeUnit& unit : kTimeUnits) {
    const auto size = static_cast<int64_t>(unit.seconds);
    if (left >= size) text += std::to_string(left / size) + unit.letter;
    left %= size;
  }
  return text;
}

std::string token_text(double tokens) {
  for (const TokenUnit& unit : kTokenUnits) {
    const double count = tokens / unit.tokens;
    if (tokens > 0 && std::trunc(count) == count && count * unit.tokens == tokens) {
      return plain_number(count) + unit.letter + "tok";
    }
  }
  return plain_number(tokens) + "tok";
}

std::string time_hint(double count, std::string_view unit) {
  while (!unit.empty() && unit[0] == ' ') unit.remove_prefix(1);
  for (const auto& [start, letter] : {std::pair("min", "m"), {"sec", "s"}, {"ho", "h"}, {"hr", "h"}, {"day", "d"}}) {
    if (unit.starts_with(start)) return "write `" + plain_number(count) + letter + "`";
  }
  return {};
}

/// Guesses what `count` followed by `unit` means.
std::string length_hint(double count, std::string_view unit) {
  while (!unit.empty() && unit[0] == ' ') unit.remove_prefix(1);
  const std::string number = plain_number(count);
  if (unit == "e" || unit.starts_with("epoch")) return "write `" + number + "ep`";
  if (unit.starts_with("step") || unit.starts_with("it") || unit.starts_with("ba")) return "write `" + number + "`";
  if (unit.starts_with("tok")) return "write `" + number + "tok`";
  if (unit == "K" || unit == "k")
    return "write `" + plain_number(count * 1e3) + "` for steps, `" + number + "ktok` for tokens";
  if (unit == "M" || unit == "B" || unit == "T") return "write `" + number + std::string(unit) + "tok` for tokens";
  return time_hint(count, unit);
}

Parsed<Length> parse_tokens(std::string_view text, double count, std::string_view unit) {
  double scale = 1;
  if (unit.size() == 4) {
    scale = 0;
    for (const TokenUnit& known : kTokenUnits) {
      if (known.letter == unit[0]) scale = known.tokens;
    }
    if (scale == 0) return {.hint = "tokens count in k, M, B or T: 500ktok, 2Btok"};
  }
  const double tokens = std::round(count * scale);
  if (tokens > kLargest || std::fabs(tokens - count * scale) > 1e-6 * tokens) {
    return {.problem = shown(text) + " is not a whole number of tokens below 9e15"};
  }
  return {.value = Length{tokens, Length::Unit::tokens}};
}

}  // namespace

std::string to_string(const Length& length) {
  switch (length.unit) {
    case Length::Unit::steps:
      return plain_number(length.value);
    case Length::Unit::epochs:
      return plain_number(length.value) + "ep";
    case Length::Unit::percent:
      return plain_number(length.value) + "%";
    case Length::Unit::tokens:
      return token_text(length.value);
    case Length::Unit::seconds:
      return time_text(length.value);
  }
  return {};
}

std::string to_string(const Duration& duration) { return time_text(duration.seconds); }

std::string percent_of_ratio(const std::string& ratio) {
  const Parsed<double> number = parse_number(ratio);
  // Rounded because 0.07 * 100 is 7.000000000000001.
  return number.value ? plain_number(std::round(*number.value * 1e8) / 1e6) + "%" : ratio;
}

std::string epochs_of_count(const std::string& count) { return parse_number(count).value ? count + "ep" : count; }

Parsed<Length> parse_length(std::string_view text) {
  std::string_view unit = text;
  const std::optional<double> count = take_number(unit);
  if (!count) return {};
  if (unit.empty()) {
    if (std::trunc(*count) != *count) {
      return {.problem = shown(text) + " is not a whole number of steps",
              .hint = "for epochs write `" + std::string(text) + "ep`"};
    }
    return {.value = Length{*count, Length::Unit::steps}};
  }
  if (unit == "ep") return {.value = Length{*count, Length::Unit::epochs}};
  if (unit == "%") {
    if (*count > 100) return {.problem = shown(text) + " is more than 100%"};
    return {.value = Length{*count, Length::Unit::percent}};
  }
  if (unit.ends_with("tok") && unit.size() <= 4) return parse_tokens(text, *count, unit);
  if (const std::optional<double> seconds = take_time(text)) {
    return {.value = Length{*seconds, Length::Unit::seconds}};
  }
  return {.hint = length_hint(*count, unit)};
}

Parsed<Duration> parse_duration(std::string_view text) {
  constexpr double kLongest = 100 * 365 * 86400.0;  // clocks count nanoseconds in 64 bits: at most 292 years
  std::string_view unit = text;
  const std::optional<double> count = take_number(unit);
  const std::optional<double> seconds = count && unit.empty() ? count : take_time(text);
  if (!seconds) return {.hint = count ? time_hint(*count, unit) : std::string()};
  if (*seconds > kLongest) return {.problem = shown(text) + " is more than 100 years"};
  return {.value = Duration{*seconds}};
}

}  // namespace gputrain::config
