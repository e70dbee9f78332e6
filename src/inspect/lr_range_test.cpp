#include "gputrain/inspect/lr_range_test.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {
namespace {

/// Limits losses to twice the first ones: higher ones only show that the training diverges.
std::vector<double> clipped_losses(const std::vector<LrPoint>& points) {
  const size_t first = std::max<size_t>(1, points.size() / 20);
  double highest = points.front().loss;
  for (size_t i = 0; i < first; ++i) highest = std::max(highest, points[i].loss);
  std::vector<double> losses;
  for (const LrPoint& point : points) losses.push_back(std::min(point.loss, highest + std::abs(highest)));
  return losses;
}

/// Computes means under a Gaussian window. Unlike a running average, it does not move the curve to higher rates.
std::vector<double> smooth(const std::vector<double>& values) {
  const double width = std::max(1.0, static_cast<double>(values.size()) / 30);
  const auto reach = static_cast<int64_t>(std::ceil(3 * width));
  std::vector<double> smoothed;
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    double sum = 0, weight = 0;
    for (int64_t j = std::max<int64_t>(0, i - reach); j <= std::min(i + reach, std::ssize(values) - 1); ++j) {
      const double distance = static_cast<double>(j - i) / width;
      const double share = std::exp(-distance * distance / 2);
      sum += share * values[static_cast<size_t>(j)];
      weight += share;
    }
    smoothed.push_back(sum / weight);
  }
  return smoothed;
}

/// Returns the standard deviation of normal noise, by the median of the steps between neighbours: a few large ones, of
/// a training that diverges, do not count.
double noise_of(const std::vector<double>& losses) {
  constexpr double kMedianOfNormalSteps = 0.6745 * 1.41421356;
  std::vector<double> steps;
  for (size_t i = 1; i < losses.size(); ++i) steps.push_back(std::abs(losses[i] - losses[i - 1]));
  const auto middle = steps.begin() + std::ssize(steps) / 2;
  std::ranges::nth_element(steps, middle);
  return *middle / kMedianOfNormalSteps;
}

/// Returns a number of few digits for a job: 0.0023, 3.1e-5.
std::string rate_text(double lr) { return fmt::format("{:.2g}", lr); }

}  // namespace

double LrRange::at(int64_t step) const {
  return min * std::pow(max / min, static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, steps - 1)));
}

bool Divergence::has_come(double loss) {
  constexpr double kKept = 0.9;
  if (!std::isfinite(loss)) return true;
  average_ = kKept * average_ + (1 - kKept) * loss;
  weight_ = kKept * weight_ + (1 - kKept);
  const double smoothed = average_ / weight_;
  if (!lowest_ || smoothed < *lowest_) lowest_ = smoothed;
  return smoothed > *lowest_ + 3 * std::abs(*lowest_);
}

LrSuggestion suggest_lr(const std::vector<LrPoint>& points) {
  GPUTRAIN_ASSERT(points.size() > 2, "a range test has some points");
  const auto losses = clipped_losses(points);
  LrSuggestion found{.smoothed = smooth(losses)};
  const auto& smoothed = found.smoothed;
  found.lowest = static_cast<size_t>(std::ranges::min_element(smoothed) - smoothed.begin());
  double steepest = 0;
  for (size_t i = 1; i <= found.lowest && i + 1 < points.size(); ++i) {
    const double fall = smoothed[i - 1] - smoothed[i + 1];
    if (fall > steepest) {
      steepest = fall;
      found.fastest = found.suggested = i;
    }
  }
  // Bad initial weights give losses that fall at any rate.
  while (points[found.suggested].lr < points[found.lowest].lr / 10) ++found.suggested;
  constexpr double kFarFromNoise = 2;
  found.falls = smoothed.front() - smoothed[found.lowest] > kFarFromNoise * noise_of(losses);
  return found;
}

std::string lr_table(const std::vector<LrPoint>& points, const LrSuggestion& found, size_t columns) {
  constexpr size_t kRows = 20;
  const auto [low, high] = std::ranges::minmax(found.smoothed);
  const size_t in_row = std::max<size_t>(1, (points.size() + kRows - 1) / kRows);
  const size_t widest = columns > 60 ? columns - 50 : 10;
  std::string text = fmt::format("{:>9} {:>10}\n", "lr", "loss");
  for (size_t begin = 0; begin < points.size(); begin += in_row) {
    const size_t end = std::min(begin + in_row, points.size());
    const auto holds = [&](size_t point) { return begin <= point && point < end; };
    size_t shown = (begin + end) / 2;
    for (const size_t marked : {found.fastest, found.lowest, found.suggested})
      if (holds(marked)) shown = marked;
    const double share = high > low ? (found.smoothed[shown] - low) / (high - low) : 0;
    text += fmt::format("{:>9} {:>10} {}", rate_text(points[shown].lr), monitor::significant(found.smoothed[shown]),
                        std::string(1 + static_cast<size_t>(share * static_cast<double>(widest)), '#'));
    if (found.falls && holds(found.fastest)) text += "  falls fastest";
    if (found.falls && holds(found.suggested)) text += "  suggested";
    if (holds(found.lowest)) text += "  lowest";
    text += "\n";
  }
  return text;
}

std::string lr_picture(const std::vector<LrPoint>& points, const LrSuggestion& found, const std::string& title) {
  constexpr double kLeft = 70, kRight = 780, kTop = 50, kBottom = 400;
  const double first = std::log10(points.front().lr), last = std::log10(points.back().lr);
  const auto losses = clipped_losses(points);
  const auto [low, high] = std::ranges::minmax(losses);
  const auto x = [&](double log_lr) { return kLeft + (log_lr - first) / (last - first) * (kRight - kLeft); };
  const auto y = [low = low, high = high](double loss) {
    return kBottom - (high > low ? (loss - low) / (high - low) : 0) * (kBottom - kTop);
  };
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 450\" font-family=\"system-ui, sans-serif\" "
      "font-size=\"13\">\n<rect width=\"800\" height=\"450\" fill=\"white\"/>\n";
  const auto text = [&](double at_x, double at_y, const char* anchor, const std::string& words) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", at_x, at_y, anchor,
                       html_text(words));
  };
  const auto line = [&](double x1, double y1, double x2, double y2, const char* style) {
    svg += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2, style);
  };
  text(kLeft, 25, "start", title);
  for (double decade = std::ceil(first - 1e-9); decade <= last + 1e-9; ++decade) {
    line(x(decade), kTop, x(decade), kBottom, "stroke=\"#ddd\"");
    text(x(decade), kBottom + 20, "middle", fmt::format("{:g}", std::pow(10, decade)));
  }
  for (int tick = 0; tick <= 4; ++tick) {
    const double loss = low + (high - low) * tick / 4;
    line(kLeft, y(loss), kRight, y(loss), "stroke=\"#ddd\"");
    text(kLeft - 8, y(loss) + 4, "end", monitor::significant(loss));
  }
  text((kLeft + kRight) / 2, kBottom + 42, "middle", "optimizer.lr");
  for (size_t i = 0; i < points.size(); ++i)
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\" fill=\"#2466c8\" fill-opacity=\"0.35\"/>\n",
                       x(std::log10(points[i].lr)), y(losses[i]));
  svg += "<polyline fill=\"none\" stroke=\"#2466c8\" stroke-width=\"2\" points=\"";
  for (size_t i = 0; i < points.size(); ++i)
    svg += fmt::format("{:.1f},{:.1f} ", x(std::log10(points[i].lr)), y(found.smoothed[i]));
  svg += "\"/>\n";
  const auto mark = [&](size_t point, double at_y, const std::string& words) {
    const double at = x(std::log10(points[point].lr));
    line(at, kTop, at, kBottom, "stroke=\"#c8442a\" stroke-dasharray=\"4 3\"");
    text(at + (at > 600 ? -6 : 6), at_y, at > 600 ? "end" : "start", words + " " + rate_text(points[point].lr));
  };
  mark(found.lowest, kTop + 14, "lowest");
  if (found.falls) mark(found.fastest, kTop + 32, "falls fastest");
  if (found.falls && found.suggested != found.fastest) mark(found.suggested, kTop + 50, "suggested");
  return svg + "</svg>\n";
}

}  // namespace gputrain::app
