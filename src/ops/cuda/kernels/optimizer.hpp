// Updates of an arena in one launch, driven by device scalars, and what is measured of its gradients before.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

/// A stretch of the arena with its settings. Blocks of the grid are dealt out to stretches in order.
struct Stretch {
  int64_t begin, end;   // elements of the arena, multiples of kStretchAlignment
  int64_t first_block;  // blocks of the stretches before
  float decay;
  float lr_factor = 1;
  float since = 0;  // updates made before the stretch was trained
};
inline constexpr int64_t kStretchAlignment = 4;
/// Blocks that a stretch takes.
int64_t blocks_of(int64_t elements);

/// What every update reads. Nothing is changed where found_inf is not 0.
struct Update {
  float* values;           // of the arena
  const float* gradients;  // of the arena
  void* working;           // of the arena: a copy in `working_element`, 16 bits; or nullptr
  Element working_element;
  const Stretch* stretches;  // [count], on the device
  int count;
  int64_t blocks;          // of all stretches
  const float* lr;         // [1], on the device, as the next two
  const float* divisor;    // the gradient is divided by it; or nullptr
  const float* found_inf;  // or nullptr
};

struct AdamWUpdate {
  Update common;
  float *first, *second;  // averages of the gradient and of its square
  const float* step;      // [1], on the device: updates made, with this one
  double beta1, beta2;
  float eps;
};
void adamw(const AdamWUpdate& p, Stream stream);

struct SgdUpdate {
  Update common;
  float* velocity;  // nullptr without momentum
  float momentum;
  bool nesterov;
};
void sgd(const SgdUpdate& p, Stream stream);

/// partials[part] = the sum of squares of its share of values [count]; not finite where a value is not.
void square_sums(const float* values, int64_t count, double* partials, int parts, Stream stream);

/// What follows from the sum of squares of a gradient that is `scale` times too large.
struct GradientScalars {
  const double* square;  // [1]
  const float* scale;    // [1] or nullptr
  double max_norm;       // to clip to; 0: no clipping
  double* norm;          // [1]: of the gradient without its scale
  float* found_inf;      // [1]: 1 where the norm is not finite
  float* divisor;        // [1]: scale times what clipping divides by
};
void gradient_scalars(const GradientScalars& p, Stream stream);

}  // namespace gputrain::ops::cuda
