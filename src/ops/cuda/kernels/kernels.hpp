// Launchers of our CUDA kernels, with raw pointers and without LibTorch. Tensors are contiguous with the given shapes.
// Elements have the type `element`; `float` is always fp32. Outputs are written completely. The same input gives the
// same bits on the same grid: no sum uses atomics.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace gputrain::ops::cuda {

using Stream = CUstream_st*;  // cudaStream_t

enum class Element { fp32, bf16, fp16 };

/// Source of dropout's random bits: Philox with seed and offset, which a CUDA graph reads on the device.
struct Dropout {
  unsigned threshold = 0;  // of 65536: share to drop; 0: no dropout
  uint64_t seed = 0, offset = 0;
  const int64_t* seed_pointer = nullptr;
  const int64_t* offset_pointer = nullptr;  // added to `offset`
};

/// Less than 1, because kept elements are scaled by 1 / (1 - share).
inline unsigned dropout_threshold(double share) {
  const double of_65536 = share * 65536 + 0.5;
  return of_65536 >= 65535 ? 65535 : static_cast<unsigned>(of_65536);
}

/// Two rows of column sums: out[k][c] = sum over parts of partials[p][k][c], in a fixed order, added to what is there
/// if `adds`. partials [parts, 2, width], out.values [width]; null: this row is not wanted.
struct ColumnSums {
  struct Out {
    float* values = nullptr;
    bool adds = false;
  };
  const float* partials;
  Out out[2];
  int64_t parts, width;
};
void column_sums(const ColumnSums& p, Stream stream);

/// Sets out[0] to the sum of values [count], in double and in a fixed order.
void total(const float* values, int64_t count, double* out, Stream stream);
void total(const double* values, int64_t count, double* out, Stream stream);

}  // namespace gputrain::ops::cuda
