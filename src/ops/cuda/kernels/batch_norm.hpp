// Batch normalisation of channels-last images, joined with the addition and the ReLU after it.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

/// x as [rows = batch height width, channels]. `parts` blocks share the rows, at most 65535.
struct ImageRows {
  Element element;
  int64_t rows, channels;
  int parts;
};

/// Writes counts, means and sums of squared distances from them, of each part: [parts, 3, channels].
void batch_statistics(const ImageRows& images, const void* x, float* partials, Stream stream);

/// The statistics of the batch from those of its parts, and what follows from them; all [channels].
struct BatchMoments {
  const float* partials;  // [parts, 3, channels]; or nullptr
  const float* sums;      // else [2, channels]: of x and of x squared, which lose digits where the mean is large
  const float *weight, *bias;
  float eps, momentum;
  float *mean, *rstd, *scale, *shift;  // scale: weight rstd, shift: bias - mean scale
  float *running_mean, *running_var;   // moved towards the batch's; or nullptr
};
void batch_moments(const ImageRows& images, const BatchMoments& p, Stream stream);

/// y = relu(x scale + shift + residual), each of the last two steps where it is asked for.
struct BatchApply {
  const void* x;         // [rows, channels]
  const void* residual;  // [rows, channels] or nullptr
  const float *scale, *shift;
  bool relu;
  void* y;  // [rows, channels]; may be x
};
void batch_apply(const ImageRows& images, const BatchApply& p, Stream stream);

/// With g = dy where y is above 0: the sums of g and of g (x - mean), by part: [parts, 2, channels]. Without a residual
/// y follows from x and need not have been kept.
struct BatchGradient {
  const void* dy;                            // [rows, channels]
  const void* x;                             // [rows, channels]
  const void* y;                             // [rows, channels]; nullptr: from x, scale and shift
  const float *mean, *rstd, *scale, *shift;  // [channels]
  bool relu;
  float* partials;         // [parts, 2, channels]
  float *dweight, *dbias;  // [channels]
  float *slope, *offset;   // [channels]: of dx = g scale + (x - mean) slope + offset
  void* dx;                // [rows, channels]; may be dy
  void* dresidual;         // [rows, channels]: g; or nullptr
};
/// Three launches: the sums, what follows from them, dx.
void batch_gradient(const ImageRows& images, const BatchGradient& p, Stream stream);
/// Where dy is g already (so `relu` is not asked for) and its sums are known: `partials` is [1, 2, channels].
void batch_gradient_of_sums(const ImageRows& images, const BatchGradient& p, Stream stream);

}  // namespace gputrain::ops::cuda
