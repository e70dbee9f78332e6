#include "curve.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "gputrain/core/numbers.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {
namespace {

constexpr std::array kEighths{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr size_t kLabel = 8;  // width of the values at the left, with a space

std::string label(const std::string& text) {
  return std::string(kLabel - 1 - std::min(kLabel - 1, text.size()), ' ') + text;
}

/// Returns the value at each of the columns: the newest up to its step; between fewer points than columns, on a line.
std::vector<double> resampled(const std::vector<std::pair<int64_t, double>>& points, size_t columns) {
  std::vector<double> values;
  const auto first = static_cast<double>(points.front().first), last = static_cast<double>(points.back().first);
  size_t next = 0;
  for (size_t column = 0; column < columns; ++column) {
    const double until = first + (last - first) * static_cast<double>(column + 1) / static_cast<double>(columns);
    while (next + 1 < points.size() && static_cast<double>(points[next + 1].first) <= until) ++next;
    double value = points[next].second;
    if (points.size() < columns && next + 1 < points.size()) {
      const auto [begin, from] = points[next];
      const auto [end, to] = points[next + 1];
      value += (to - from) * (until - static_cast<double>(begin)) / static_cast<double>(end - begin);
    }
    values.push_back(value);
  }
  return values;
}

}  // namespace

std::vector<std::string> drawn_curve(const std::vector<std::pair<int64_t, double>>& points, const CurveSize& size) {
  std::vector<std::pair<int64_t, double>> finite = points;
  std::erase_if(finite, [](const auto& point) { return !std::isfinite(point.second); });
  if (finite.empty() || size.rows == 0 || size.columns < 3 * kLabel) return {};
  const std::vector<double> values = resampled(finite, size.columns - kLabel - 1);
  const auto [low, high] = std::ranges::minmax(values);
  const double range = high > low ? high - low : 1;
  std::vector<std::string> lines;
  for (size_t row = size.rows; row-- > 0;) {
    const std::string text = row + 1 == size.rows ? monitor::fixed(high) : row == 0 ? monitor::fixed(low) : "";
    std::string line = label(text) + " │";
    for (const double value : values) {
      const double filled = (value - low) / range * (static_cast<double>(8 * size.rows) - 1) + 1;  // in eighths
      const double here = std::clamp(filled - static_cast<double>(8 * row), 0.0, 8.0);
      line += kEighths[static_cast<size_t>(here)];
    }
    lines.push_back(std::move(line));
  }
  const std::string first = "step " + grouped(finite.front().first), last = grouped(finite.back().first);
  const size_t between = values.size() > first.size() + last.size() ? values.size() - first.size() - last.size() : 1;
  lines.push_back(label("") + "  " + first + std::string(between, ' ') + last);
  return lines;
}

}  // namespace gputrain::app
