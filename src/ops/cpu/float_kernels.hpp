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

constexpr int64_t partials_of(int64_t rows) { return (rows + kRowsPerPartial - 1) / kRowsPerPartial; }

/// x [rows, channels] of a batch norm, a row for each pixel of each image (NHWC), contiguous, followed by an optional
/// addition and a ReLU: y = max(0, x scale + shift + residual).
struct BatchRows {
  int64_t rows, channels;
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

/// Images and the gradient of what a convolution made of them, both NHWC, contiguous.
struct ConvGradient {
  int64_t images;
  int64_t in_height, in_width, in_channels;
  int64_t out_height, out_width, out_channels;
  int64_t kernel, stride, padding;  // both ways alike
  const float* x;
  const float* dy;
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

  /// Writes means of rows and sums of squared distances from them: [partials, channels], one row for each
  /// kRowsPerPartial rows.
  void (*batch_statistics)(int threads, const BatchRows& batch, float* mean, float* squares);
  /// Writes y; the residual is shaped as x, or nullptr.
  void (*batch_norm_relu)(int threads, const BatchRows& batch, const float* residual, float* y);
  /// Writes the sums of g and of g (x - mean) over rows: [partials, channels].
  void (*batch_sums)(int threads, const BatchRows& batch, const BatchGradient& gradient, float* sum_g, float* sum_gx);
  /// Writes dx, and, where a residual was added, its gradient g.
  void (*batch_norm_relu_backward)(int threads, const BatchRows& batch, const BatchGradient& gradient, float* dx,
                                   float* dresidual);

  /// Floats that conv_weight_gradient() works in, at an address that is a multiple of 64.
  int64_t (*conv_gradient_workspace)(const ConvGradient& conv);
  /// Writes dweight [out, kernel, kernel, in], the same on any number of threads.
  void (*conv_weight_gradient)(int threads, const ConvGradient& conv, float* workspace, float* dweight);
};

/// Those this processor can run, the best first; nullptr ends the list.
const FloatKernels* const* available_kernels();

const FloatKernels& float_kernels();  // the best

}  // namespace gputrain::ops::cpu
