// Kernels over the rows of [rows, width] in which each thread keeps its columns: values per column are loaded once, and
// sums over rows stay in registers.
#pragma once

#include "device.cuh"

namespace gputrain::ops::cuda {

constexpr int kColumnThreads = 256;

struct ColumnGrid {
  dim3 blocks, threads;
};

/// Makes a grid in which `parts` blocks share the rows; if rows are narrow, a warp covers several of them.
inline ColumnGrid column_grid(int64_t width, int vector, int64_t parts) {
  const int64_t packs = divided_up(width, vector);
  int64_t x = 1;
  while (x < packs && x < kWarpSize) x *= 2;
  return {dim3{extent(divided_up(packs, x)), extent(parts), 1}, dim3{extent(x), extent(kColumnThreads / x), 1}};
}

template <int kVector>
struct ColumnWalk {
  int64_t column, first, step, end;

  __device__ ColumnWalk(int64_t rows, int64_t width)
      : column((static_cast<int64_t>(block_x()) * threads_x() + thread_x()) * kVector),
        first(static_cast<int64_t>(block_y()) * threads_y() + thread_y()),
        step(static_cast<int64_t>(blocks_y()) * threads_y()),
        end(column < width ? rows : 0) {}

  /// Returns the number of rows that this thread visits.
  __device__ int64_t count() const { return first < end ? (end - first - 1) / step + 1 : 0; }
};

template <int kVector>
__device__ void load_sums(const float* from, float (&to)[kVector]) {
  load_floats(from, to);
}
template <int kVector>
__device__ void load_sums(const Bf16* from, float (&to)[kVector]) {
  load(from, to);
}
template <int kVector>
__device__ void store_sums(float* to, const float (&from)[kVector]) {
  store_floats(to, from);
}
template <int kVector>
__device__ void store_sums(Bf16* to, const float (&from)[kVector]) {
  store(to, from);
}

/// Adds up the sums of a block's threads that have the same columns, in a fixed order, and writes them to `partials`
/// [width] unless it is nullptr. Every thread of the block must call.
template <class T, int kVector>
__device__ void write_column_sums(const float (&sums)[kVector], int64_t column, int64_t width, T* partials) {
  struct Values {
    float of[kColumnThreads][kVector];
  };
  Values& values = block_memory<Values>();
  __syncthreads();
  GPUTRAIN_UNROLL
  for (int k = 0; k < kVector; ++k) values.of[thread_y() * threads_x() + thread_x()][k] = sums[k];
  __syncthreads();
  if (thread_y() != 0 || column >= width || partials == nullptr) return;
  float total[kVector];
  GPUTRAIN_UNROLL
  for (int k = 0; k < kVector; ++k) total[k] = sums[k];
  for (int y = 1; y < threads_y(); ++y) {
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) total[k] += values.of[y * threads_x() + thread_x()][k];
  }
  store_sums(partials + column, total);
}

}  // namespace gputrain::ops::cuda
