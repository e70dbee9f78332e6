// Draws from the gamma and the beta distribution.
#pragma once

#include <cmath>

#include "draw_normal.hpp"

namespace gputrain::data {

/// Draws from the gamma distribution, as a logarithm, by Marsaglia and Tsang, "A simple method for generating gamma
/// variables" (2000). Small shapes give numbers that are 0 in floating point.
inline double log_gamma_draw(RandomStream& random, double shape) {
  if (shape < 1) return log_gamma_draw(random, shape + 1) + std::log(1 - random.uniform()) / shape;
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = draw_normal(random), root = 1 + c * x, v = root * root * root;
    if (root > 0 && std::log(1 - random.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v))
      return std::log(d) + std::log(v);
  }
}

/// Draws from the beta distribution with both parameters `alpha`.
inline double draw_beta(RandomStream& random, double alpha) {
  const double one = log_gamma_draw(random, alpha), other = log_gamma_draw(random, alpha);
  return 1 / (1 + std::exp(other - one));
}

}  // namespace gputrain::data
