// Loops over fp32 rows on a CPU, compiled once per instruction set; the first use picks the best set for the processor.
// Only plain pointers, no library code: code compiled for a newer processor must not be shared with other objects.
#pragma once

#include <cstdint>

namespace gputrain::ops::cpu {

/// Rows x [rows, channels] of a layer norm (centred) or RMS norm, contiguous.
struct NormRows {
  int64_t rows, channels;
  bool centred;
  float eps;
  const float* x;
  const float* weight;  // [channels]
  const float* bias;    // [channels] or nullptr
  float* mean;          // [rows]; nullptr for an RMS norm
  float* rstd;          // [rows]: 1 / sqrt(variance + eps)
};

/// Rows per partial sum. Fixed, so that sums do not depend on the number of threads.
inline constexpr int64_t kRowsPerPartial = 64;

constexpr int64_t partials_of(int64_t rows) { return (rows + kRowsPerPartial - 1) / kRowsPerPartial; }

/// Rows x [rows, channels] of a batch norm, one per pixel of each image (NHWC), contiguous. An optional addition and a
/// ReLU follow: y = max(0, x scale + shift + residual).
struct BatchRows {
  int64_t rows, channels;
  const float* x;
  const float* scale;  // [channels]: weight rstd
  const float* shift;  // [channels]: bias - mean scale
};

/// Inputs of a batch norm's gradient: g = dy where y > 0, else 0; dx = g scale + (x - mean) slope + offset.
struct BatchGradient {
  const float* dy;
  const float* y;       // shaped as x, with the residual; nullptr: computed from x
  const float* mean;    // [channels]
  const float* slope;   // [channels]
  const float* offset;  // [channels]
};

/// A convolution's images and the gradient of its result, both NHWC, contiguous.
struct ConvGradient {
  int64_t images;
  int64_t in_height, in_width, in_channels;
  int64_t out_height, out_width, out_channels;
  int64_t kernel, stride, padding;  // the same in both dims
  const float* x;
  const float* dy;
};

struct FloatKernels {
  const char* name;
  void (*gelu_tanh)(int threads, int64_t count, const float* x, float* y);
  void (*gelu_tanh_backward)(int threads, int64_t count, const float* x, const float* dy, float* dx);
  /// Writes y [rows, channels], mean and rstd.
  void (*norm)(int threads, const NormRows& rows, float* y);
  /// Writes dx, and dweight and dbias [partials, channels], one row per kRowsPerPartial rows; dbias may be nullptr.
  void (*norm_backward)(int threads, const NormRows& rows, const float* dy, float* dx, float* dweight, float* dbias);

  /// Writes means of rows and sums of squared distances from them: [partials, channels], one row per kRowsPerPartial
  /// rows.
  void (*batch_statistics)(int threads, const BatchRows& batch, float* mean, float* squares);
  /// Writes y. The residual has x's shape, or is nullptr.
  void (*batch_norm_relu)(int threads, const BatchRows& batch, const float* residual, float* y);
  /// Writes the sums of g and of g (x - mean) over rows: [partials, channels].
  void (*batch_sums)(int threads, const BatchRows& batch, const BatchGradient& gradient, float* sum_g, float* sum_gx);
  /// Writes dx and, if a residual was added, its gradient g.
  void (*batch_norm_relu_backward)(int threads, const BatchRows& batch, const BatchGradient& gradient, float* dx,
                                   float* dresidual);

  /// Size of conv_weight_gradient()'s workspace in floats; it must be aligned to 64 bytes.
  int64_t (*conv_gradient_workspace)(const ConvGradient& conv);
  /// Writes dweight [out, kernel, kernel, in]; the same bits for any number of threads.
  void (*conv_weight_gradient)(int threads, const ConvGradient& conv, float* workspace, float* dweight);
};

/// Kernels that this processor can run, the best first; nullptr ends the list.
const FloatKernels* const* available_kernels();

const FloatKernels& float_kernels();  // the best

}  // namespace gputrain::ops::cpu
