// Batch normalisation of channels-last images, fused with the addition and the ReLU after it.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

/// x as [rows = batch * height * width, channels]. `parts` blocks share the rows, at most 65535.
struct ImageRows {
  Element element;
  int64_t rows, channels;
  int parts;
};

/// Writes [parts, 3, channels]: count, mean, and sum of squared distances from the mean of each part.
void batch_statistics(const ImageRows& images, const void* x, float* partials, Stream stream);

/// Statistics of the batch from those of its parts, and values derived from them; all [channels].
struct BatchMoments {
  const float* partials;  // [parts, 3, channels]; or nullptr
  const float* sums;      // else [2, channels]: sums of x and x squared, which lose digits if the mean is large
  const float *weight, *bias;
  float eps, momentum;
  float *mean, *rstd, *scale, *shift;  // scale: weight rstd, shift: bias - mean scale
  float *running_mean, *running_var;   // updated in place; or nullptr
};
void batch_moments(const ImageRows& images, const BatchMoments& p, Stream stream);

/// y = relu(x scale + shift + residual); residual and ReLU are optional.
struct BatchApply {
  const void* x;         // [rows, channels]
  const void* residual;  // [rows, channels] or nullptr
  const float *scale, *shift;
  bool relu;
  void* y;          // [rows, channels]; may be x
  uint8_t* passed;  // [passed_bytes()]: a bit for each y, 1 if it is above 0; or nullptr
};
/// Returns the size of `passed`; 0: this call writes no bits, because channels or addresses do not fill whole packs.
int64_t passed_bytes(const ImageRows& images, const BatchApply& p);
void batch_apply(const ImageRows& images, const BatchApply& p, Stream stream);

/// Let g = dy where y > 0, else 0. The sums of g and of g (x - mean) are kept per part. Whether y > 0 is read from
/// `passed`, or else from y, or else, without a residual, computed from x.
struct BatchGradient {
  const void* dy;                            // [rows, channels]
  const void* x;                             // [rows, channels]
  const void* y;                             // [rows, channels] or nullptr
  const uint8_t* passed;                     // written by batch_apply(); or nullptr
  const float *mean, *rstd, *scale, *shift;  // [channels]
  bool relu;
  float* partials;         // [parts, 2, channels]
  float *dweight, *dbias;  // [channels]
  float *slope, *offset;   // [channels]; dx = g scale + (x - mean) slope + offset
  void* dx;                // [rows, channels]; may be dy
  void* dresidual;         // [rows, channels]: g, which the last launch then reads instead of dy; or nullptr
};
/// Launches three kernels: the sums, the slopes, dx.
void batch_gradient(const ImageRows& images, const BatchGradient& p, Stream stream);
/// Does the same if dy is already g (`relu` is false) and its sums are known: `partials` is [1, 2, channels].
void batch_gradient_of_sums(const ImageRows& images, const BatchGradient& p, Stream stream);

}  // namespace gputrain::ops::cuda
