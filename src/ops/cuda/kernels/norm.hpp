// LayerNorm and RMSNorm of rows, fused with the dropout and the residual addition before them.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

/// z = residual + dropout(x), y = (z - mean) rstd scale + shift.
struct NormForward {
  Element element;
  int64_t rows, width;
  bool centred;  // LayerNorm; false: RMSNorm, with mean 0
  float eps;
  Dropout dropout;
  const void* x;         // [rows, width]
  const void* residual;  // [rows, width] or nullptr
  const float* scale;    // [width]
  const float* shift;    // [width] or nullptr
  void* z;               // [rows, width]; nullptr without residual and dropout: z is x
  void* y;               // [rows, width]
  float* mean;           // [rows]; nullptr for an RMSNorm
  float* rstd;           // [rows]
};

/// dz = passed + norm'(dy), the gradient of the residual; dx is dz through the dropout. Sums over rows are in parts.
struct NormBackward {
  Element element;
  int64_t rows, width;
  bool centred;
  Dropout dropout;
  const void* dy;      // [rows, width]
  const void* passed;  // [rows, width]: gradient of z from elsewhere; or nullptr
  const void* z;       // [rows, width]
  const float* scale;  // [width]
  const float* mean;   // [rows] or nullptr
  const float* rstd;   // [rows]
  void* dz;            // [rows, width]
  void* dx;            // [rows, width]; nullptr without dropout: dx is dz
  float* partials;     // [parts, 2, width]: gradients of scale and shift
  int parts;           // blocks; each visits every parts-th group of rows
};

/// Returns whether the launchers below accept rows of this width.
bool takes_norm_width(int64_t width);
void norm_forward(const NormForward& p, Stream stream);
void norm_backward(const NormBackward& p, Stream stream);

}  // namespace gputrain::ops::cuda
