// A curve drawn with blocks of a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gputrain::app {

struct CurveSize {
  size_t columns = 80, rows = 6;  // rows without that of the steps
};

/// Draws (step, value) pairs in order of steps: values at the left, steps below. Returns rows + 1 lines, or none if
/// there is no room or no finite value.
std::vector<std::string> drawn_curve(const std::vector<std::pair<int64_t, double>>& points, const CurveSize& size);

}  // namespace gputrain::app
