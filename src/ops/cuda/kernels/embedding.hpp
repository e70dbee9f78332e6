// The gradient of a look-up, without atomics.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

/// dweight[token] = the sum of the rows of dy that looked it up. Tokens come sorted, each with the row it stood at.
struct EmbeddingGradient {
  Element element;
  int64_t count, rows, channels;
  const int64_t* tokens;     // [count], ascending, of [0, rows)
  const int64_t* positions;  // [count]: the row of dy
  const void* dy;            // [count, channels]
  float* dweight;            // [rows, channels]: only rows of tokens that occur are written
  bool adds;                 // to what dweight holds
};
void embedding_gradient(const EmbeddingGradient& p, Stream stream);

}  // namespace gputrain::ops::cuda
