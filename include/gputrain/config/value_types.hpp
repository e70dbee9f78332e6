// Value types beyond those of YAML: `auto`, lists that may be one value, lengths and durations with a unit.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gputrain::config {

/// A T, or `auto` (empty): gputrain chooses the value.
template <class T>
struct Auto {
  std::optional<T> value;  // empty: auto
  bool is_auto() const noexcept { return !value.has_value(); }

  friend bool operator==(const Auto&, const Auto&) = default;
};

/// A list; one element may be written without brackets: `32` or `[32, 16]`. Of a group with one required key, a text,
/// that text alone may stand for the element.
template <class T>
struct OneOrMore {
  std::vector<T> values;

  OneOrMore() = default;
  OneOrMore(T one) : values{std::move(one)} {}
  OneOrMore(std::initializer_list<T> several) : values(several) {}

  friend bool operator==(const OneOrMore&, const OneOrMore&) = default;
};

/// A length of training: `500` (steps), `5ep`, `10%`, `2Btok`, `30m`.
struct Length {
  enum class Unit { steps, epochs, percent, tokens, seconds };
  double value = 0;
  Unit unit = Unit::steps;

  friend bool operator==(const Length&, const Length&) = default;
};

/// Returns the text that reads back to exactly this length: "500", "5ep", "10%", "2Btok", "1h30m".
std::string to_string(const Length& length);

/// A wall-clock duration: `90s`, `30m`, `1h30m`, `2d`; a number without a unit is in seconds.
struct Duration {
  double seconds = 0;

  friend bool operator==(const Duration&, const Duration&) = default;
};

/// Returns the text that reads back to exactly this duration: 90 seconds give "1m30s", 1800 seconds "30m".
std::string to_string(const Duration& duration);

/// Converters for Key::aliases, for tools that have one key per unit: "0.1" to "10%", "5" to "5ep".
std::string percent_of_ratio(const std::string& ratio);
std::string epochs_of_count(const std::string& count);

}  // namespace gputrain::config
