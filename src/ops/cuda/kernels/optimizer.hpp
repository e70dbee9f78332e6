// Updates of an arena in one launch, controlled by device scalars, and the gradient norm before them.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

/// A range of the arena with its settings. The grid's blocks are assigned to stretches in order.
struct Stretch {
  int64_t begin, end;   // elements of the state; multiples of kStretchAlignment, as are the shifts
  int64_t first_block;  // number of blocks of earlier stretches
  float decay;
  float lr_factor = 1;
  float since = 0;                                // updates made before the stretch was trained
  int64_t values_shift = 0, gradients_shift = 0;  // places of values and gradients, less `begin`
  uint64_t key = 0;     // key of the tensor's random bits for stochastic rounding, if bf16 is written
  int64_t element = 0;  // the number of `begin` in that tensor; a multiple of four
};
inline constexpr int64_t kStretchAlignment = 4;
/// Returns the number of blocks for a stretch.
int64_t blocks_of(int64_t elements);

/// Operands of every update. Nothing changes if found_inf is not 0.
struct Update {
  Element element;  // of values and gradients; bf16 values are rounded stochastically: only by adamw()
  void* values;
  const void* gradients;
  void* working;  // a copy of the values in `working_element`, 16 bits; or nullptr
  Element working_element;
  const Stretch* stretches;  // [count], on the device
  int count;
  int64_t blocks;          // for all stretches
  const float* lr;         // learning rate: [1], on the device, as the next two
  const float* divisor;    // divides the gradient; or nullptr
  const float* found_inf;  // or nullptr
};

struct AdamWUpdate {
  Update common;
  Element averages;      // bf16 is rounded stochastically
  void *first, *second;  // averages of the gradient and its square
  const float* step;     // [1], on the device: number of updates, including this one
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

/// Sets partials[part] to the sum of squares of its share of values [count]; not finite if a value is not finite.
void square_sums(Element element, const void* values, int64_t count, double* partials, int parts, Stream stream);

/// Scalars from the sum of squares of a gradient that is `scale` times too large.
struct GradientScalars {
  const double* square;  // [1]
  const float* scale;    // [1] or nullptr
  double max_norm;       // clips to this; 0: no clipping
  double* norm;          // [1]: of the unscaled gradient
  float* found_inf;      // [1]: 1 if the norm is not finite
  float* divisor;        // [1]: scale times the divisor of clipping
};
void gradient_scalars(const GradientScalars& p, Stream stream);

}  // namespace gputrain::ops::cuda
