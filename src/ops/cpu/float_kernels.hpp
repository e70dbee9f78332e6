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

/// Rows that share one partial sum of the weight's gradient: fixed, so that sums do not depend on the thread count.
inline constexpr int64_t kRowsPerPartial = 64;

struct FloatKernels {
  const char* name;
  void (*gelu_tanh)(int threads, int64_t count, const float* x, float* y);
  void (*gelu_tanh_backward)(int threads, int64_t count, const float* x, const float* dy, float* dx);
  /// Writes y [rows, channels], mean and rstd.
  void (*norm)(int threads, const NormRows& rows, float* y);
  /// Writes dx, and dweight and dbias [partials, channels], one row for each kRowsPerPartial rows; dbias may be
  /// nullptr.
  void (*norm_backward)(int threads, const NormRows& rows, const float* dy, float* dx, float* dweight, float* dbias);
};

/// Those this processor can run, the best first; nullptr ends the list.
const FloatKernels* const* available_kernels();

const FloatKernels& float_kernels();  // the best

}  // namespace gputrain::ops::cpu
