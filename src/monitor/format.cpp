#include "gputrain/monitor/format.hpp"

#include <array>
#include <cmath>
#include <cstdio>

namespace gputrain::monitor {
namespace {

std::string print(const char* format, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

/// Returns a number with an exponent, such as 4.29e-4.
std::string with_exponent(const char* format, double value) {
  int exponent = static_cast<int>(std::floor(std::log10(std::abs(value))));
  std::string digits = print(format, value / std::pow(10.0, exponent));
  if (digits.starts_with("10") || digits.starts_with("-10"))  // rounded up
    digits = print(format, value / std::pow(10.0, ++exponent));
  return digits + "e" + std::to_string(exponent);
}

std::string three_digits(double value) {
  return print(value >= 99.95 ? "%.0f" : value >= 9.995 ? "%.1f" : "%.2f", value);
}

}  // namespace

std::string compact(double value) {
  if (!std::isfinite(value)) return print("%g", value);
  constexpr std::array kUnits{"", "k", "M", "B", "T"};
  size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0 && value == std::floor(value)) return print("%.0f", value);
  return (value < 0 ? "-" : "") + three_digits(std::abs(value)) + kUnits[unit];
}

std::string significant(double value) {
  if (std::isnan(value)) return "nan";  // printf may print "-nan"
  if (value == 0 || std::isinf(value)) return print("%g", value);
  return std::abs(value) >= 1e-2 ? print("%.4g", value) : with_exponent("%.3g", value);
}

std::string fixed(double value) {
  constexpr std::array kFormats{"%.4f", "%.3f", "%.2f", "%.1f", "%.0f"};
  if (!std::isfinite(value)) return significant(value);
  const double size = std::abs(value);
  if (size == 0) return print(kFormats[0], 0);
  if (size < 1e-2 || size >= 999999.5) return with_exponent("%.2f", value);
  size_t digits = 0;  // before the point, besides one
  for (double limit = 9.99995; size >= limit && digits + 1 < kFormats.size(); limit *= 10) ++digits;
  return print(kFormats[digits], value);
}

std::string money(double sum) { return sum >= 0.01 || sum == 0 ? print("%.2f", sum) : significant(sum); }

std::string duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds > 0 && seconds < 0.00995) return print("%.1fms", seconds * 1000);
  if (seconds < 0.9995) return print("%.0fms", seconds * 1000);
  if (seconds < 9.95) return print("%.1fs", seconds);
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return std::to_string(whole) + "s";
  if (whole < 3600) return std::to_string(whole / 60) + "m" + std::to_string(whole % 60) + "s";
  if (whole < 86400) return std::to_string(whole / 3600) + "h" + std::to_string(whole % 3600 / 60) + "m";
  return std::to_string(whole / 86400) + "d" + std::to_string(whole % 86400 / 3600) + "h";
}

std::string bytes(double count) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (count >= 999.5 && unit + 1 < kUnits.size()) {
    count /= 1024;
    ++unit;
  }
  return (unit == 0 ? print("%.0f", count) : three_digits(count)) + " " + kUnits[unit];
}

}  // namespace gputrain::monitor
