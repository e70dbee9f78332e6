// Gradient of a look-up, without atomics.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

/// dweight[token] = sum of the rows of dy that looked it up. Tokens are sorted, each with its original row.
struct EmbeddingGradient {
  Element element;
  int64_t count, rows, channels;
  const int64_t* tokens;     // [count], ascending, in [0, rows)
  const int64_t* positions;  // [count]: the row of dy
  const void* dy;            // [count, channels]
  Element weight_element;    // of dweight: fp32, or bf16 if dy is bf16
  void* dweight;             // [rows, channels]: only rows of occurring tokens are written
  bool adds;                 // adds to the values in dweight
};
void embedding_gradient(const EmbeddingGradient& p, Stream stream);

}  // namespace gputrain::ops::cuda
