// Element-wise functions between matrix products.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

enum class ActivationKind { gelu, gelu_tanh, silu };  // gelu: exact, with erf

/// y = activation(x), and its gradient with the sums of its columns.
struct ActivationRows {
  Element element;
  ActivationKind kind;
  int64_t rows, width;
  const void* x;              // [rows, width]
  void* y;                    // [rows, width]; forward only
  const void* dy;             // [rows, width]; backward only
  void* dx;                   // [rows, width]; backward only; may be dy
  int parts;                  // blocks that share the rows, at most 65535
  float* partials = nullptr;  // [parts, width]; backward only: sums of dx over each part's rows, unless nullptr
};
void activation_forward(const ActivationRows& p, Stream stream);
void activation_backward(const ActivationRows& p, Stream stream);

/// y = silu(gate) up (Shazeer, arXiv:2002.05202), and its gradients. Gate and up may be halves of one tensor: their
/// rows are `stride` elements apart. So may their gradients, with `gradient_stride`. Other tensors are contiguous.
struct GatedRows {
  Element element;
  int64_t rows, width, stride, gradient_stride;
  const void* gate;  // [rows, width]
  const void* up;    // [rows, width]
  void* y;           // [rows, width]; forward only
  const void* dy;    // [rows, width]; backward only
  void* dgate;       // [rows, width]; backward only
  void* dup;         // [rows, width]; backward only
  int parts;         // blocks that share the rows, at most 65535
};
void gated_forward(const GatedRows& p, Stream stream);
void gated_backward(const GatedRows& p, Stream stream);

/// Rotary positions (Su et al., arXiv:2104.09864): rotates channels i and i + half of a head by the angle of the
/// position. Direction -1 rotates back, which is the gradient.
struct Rotation {
  struct Strides {
    int64_t batch, head, time;  // in elements; channels are contiguous
  };
  Element element;
  int64_t batch, heads, time, half;  // half: channels of a head / 2
  Strides x_strides, y_strides;
  float direction;
  const void* x;               // [batch, heads, time, 2 half]
  const float *cosine, *sine;  // [time, half], or [batch, time, half] if rows have tables of their own
  bool tables_of_rows;
  void* y;  // shape of x; may be x
};
void rotate(const Rotation& p, Stream stream);

}  // namespace gputrain::ops::cuda
