// Loops over fp32 rows on a CPU, compiled once per instruction set; the best the processor has is chosen at the first
// use. Plain pointers and no library code: what is compiled for a newer processor must not be shared with the rest.
#pragma once

#include <cstdint>

namespace gputrain::ops::cpu {

/// x [rows, channels] of a layer norm (centred) or RMS norm, contiguous.
struct NormRows {
  int64_t rows, channels;
  bool centred;
  float eps;
  const float* x;
  const float* weight;  // [channels]
  const float* bias;    // [channels] or nullptr
  float* mean;          // [rows]; of an RMS norm nullptr
  float* rstd;          // [rows]: 1 / sqrt(variance + eps)
};

/// Rows that share one partial sum over rows: fixed, so that sums do not depend on the thread count.
inline constexpr int64_t kRowsPerPartial = 64;

/// x [images, channels, pixels] of a batch norm, contiguous, followed by an optional addition and a ReLU:
/// y = max(0, x scale + shift + residual).
struct BatchPlanes {
  int64_t images, channels, pixels;
  const float* x;
  const float* scale;  // [channels]: weight rstd
  const float* shift;  // [channels]: bias - mean scale
};

/// What a batch norm's gradient needs: g = dy where y is above 0, dx = g scale + (x - mean) slope + offset.
struct BatchGradient {
  const float* dy;
  const float* y;       // as x, after a residual was added; nullptr: y follows from x
  const float* mean;    // [channels]
  const float* slope;   // [channels]
  const float* offset;  // [channels]
};

struct FloatKernels {
  const char* name;
  void (*gelu_tanh)(int threads, int64_t count, const float* x, float* y);
  void (*gelu_tanh_backward)(int threads, int64_t count, const float* x, const float* dy, float* dx);
  /// Writes y [rows, channels], mean and rstd.
  void (*norm)(int threads, const NormRows& rows, float* y);
  /// Writes dx, and dweight and dbias [partials, channels], one row for each kRowsPerPartial rows; dbias may be
  /// nullptr.
  void (*norm_backward)(int threads, const NormRows& rows, const float* dy, float* dx, float* dweight, float* dbias);

  /// Writes the mean of each plane and the sum of squared distances from it: [images, channels].
  void (*batch_statistics)(int threads, const BatchPlanes& planes, float* mean, float* squares);
  /// Writes y; the residual is shaped as x, or nullptr.
  void (*batch_norm_relu)(int threads, const BatchPlanes& planes, const float* residual, float* y);
  /// Writes the sums of g and of g (x - mean) over each plane: [images, channels].
  void (*batch_sums)(int threads, const BatchPlanes& planes, const BatchGradient& gradient, float* sum_g,
                     float* sum_gx);
  /// Writes dx, and, where a residual was added, its gradient g.
  void (*batch_norm_relu_backward)(int threads, const BatchPlanes& planes, const BatchGradient& gradient, float* dx,
                                   float* dresidual);
};

/// Those this processor can run, the best first; nullptr ends the list.
const FloatKernels* const* available_kernels();

const FloatKernels& float_kernels();  // the best

}  // namespace gputrain::ops::cpu
