// Learning-rate range test: a short training whose rate rises from step to step (Smith, "Cyclical learning rates for
// training neural networks", WACV 2017).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gputrain::app {

struct LrRange {
  double min = 1e-6, max = 1;
  int64_t steps = 100;

  /// Returns the rate of a step: from min to max, in a geometric sequence.
  double at(int64_t step) const;
};

/// Rate of a step, and the mean loss before its update.
struct LrPoint {
  double lr = 0, loss = 0;
};

/// Detector of a loss that has risen so far that higher rates need no trial.
class Divergence {
 public:
  /// Returns whether the loss is not finite, or the smoothed loss above four times the lowest.
  bool has_come(double loss);

 private:
  double average_ = 0, weight_ = 0;
  std::optional<double> lowest_;
};

struct LrSuggestion {
  std::vector<double> smoothed;  // losses without their noise
  size_t lowest = 0;             // point of the lowest smoothed loss
  size_t fastest = 0;            // point at which it falls fastest on a logarithmic axis
  size_t suggested = 0;          // later one of `fastest` and of a tenth of the lowest loss's rate
  bool falls = false;            // the loss falls more than its noise
};

/// Suggests a rate from the losses of rising rates. All losses must be finite.
LrSuggestion suggest_lr(const std::vector<LrPoint>& points);

/// Returns a row for each part of the range: the rate, the smoothed loss and a bar; `columns` wide at most.
std::string lr_table(const std::vector<LrPoint>& points, const LrSuggestion& found, size_t columns);

/// Returns a drawing of the losses over the rates, as an SVG document.
std::string lr_picture(const std::vector<LrPoint>& points, const LrSuggestion& found, const std::string& title);

}  // namespace gputrain::app
