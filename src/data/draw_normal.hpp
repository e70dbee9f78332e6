// Draw from the normal distribution.
#pragma once

#include <cmath>
#include <numbers>

#include "gputrain/core/random.hpp"

namespace gputrain::data {

/// Draws with mean 0 and standard deviation 1, by Box and Muller.
inline double draw_normal(RandomStream& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

}  // namespace gputrain::data
