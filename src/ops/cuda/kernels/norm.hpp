// LayerNorm and RMSNorm of rows, joined with the dropout and the residual addition before them.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

/// z = residual + dropout(x), y = (z - mean) rstd scale + shift.
struct NormForward {
  Element element;
  int64_t rows, width;
  bool centred;  // LayerNorm; else RMSNorm: mean taken as 0
  float eps;
  Dropout dropout;
  const void* x;         // [rows, width]
  const void* residual;  // [rows, width] or nullptr
  const float* scale;    // [width]
  const float* shift;    // [width] or nullptr
  void* z;               // [rows, width]; nullptr where there is neither residual nor dropout: z is x
  void* y;               // [rows, width]
  float* mean;           // [rows]; nullptr for an RMSNorm
  float* rstd;           // [rows]
};

/// dz = passed + norm'(dy), the gradient of the residual, and of x through its dropout; sums over rows in parts.
struct NormBackward {
  Element element;
  int64_t rows, width;
  bool centred;
  Dropout dropout;
  const void* dy;      // [rows, width]
  const void* passed;  // [rows, width]: the gradient of z from elsewhere, or nullptr
  const void* z;       // [rows, width]
  const float* scale;  // [width]
  const float* mean;   // [rows] or nullptr
  const float* rstd;   // [rows]
  void* dz;            // [rows, width]
  void* dx;            // [rows, width]; nullptr without dropout: dx is dz
  float* partials;     // [parts, 2, width]: of the gradients of scale and shift
  int parts;           // blocks; each goes over every parts-th group of rows
};

/// Whether the launchers below take rows of this width.
bool takes_norm_width(int64_t width);
void norm_forward(const NormForward& p, Stream stream);
void norm_backward(const NormBackward& p, Stream stream);

}  // namespace gputrain::ops::cuda
