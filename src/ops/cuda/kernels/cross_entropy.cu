// Cross entropy of rows of logits, one block per row: maximum and sum in one pass (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", arXiv:1805.02867), then the gradient over the logits while the cache has them.
// Registers: cross_entropy_kernel 64
// Registers: scale_logits_kernel 32
#include "cross_entropy.hpp"

#include "device.cuh"

namespace gputrain::ops::cuda {
namespace {

constexpr int kMostThreads = 512;

/// Exponentials of some logits x. `sum` is the sum of exp(x - top), `plain` the sum of x.
struct Exponentials {
  float top = -FLT_MAX;  // finite, so that logits of minus infinity add nothing
  float sum = 0, plain = 0;

  __device__ void add(const Exponentials& other) {
    const float higher = fmaxf(top, other.top);
    sum = sum * __expf(top - higher) + other.sum * __expf(other.top - higher);
    plain += other.plain;
    top = higher;
  }
  __device__ float lse() const { return top + logf(sum); }
};

/// Returns the number of classes among the kVector columns that begin here.
template <int kVector>
__device__ int classes_from(int64_t column, int64_t classes) {
  const int64_t left = classes - column;
  return left >= kVector ? kVector : (left > 0 ? static_cast<int>(left) : 0);
}

template <class T, int kVector>
__device__ Exponentials of_thread(const T* row, int64_t classes) {
  Exponentials all;
  GPUTRAIN_UNROLL_4
  for (int64_t column = thread_x() * kVector; column < classes; column += threads_x() * kVector) {
    const int count = classes_from<kVector>(column, classes);
    float x[kVector];
    load(row + column, x);
    float top = all.top;
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) {
      if (k < count) top = fmaxf(top, x[k]);
    }
    float sum = 0, plain = 0;
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) {
      if (k >= count) continue;
      sum += __expf(x[k] - top);
      plain += x[k];
    }
    all.sum = all.sum * __expf(all.top - top) + sum;
    all.plain += plain;
    all.top = top;
  }
  return all;
}

/// Returns the block's total, summed in a fixed order and returned to every thread. One barrier.
__device__ inline Exponentials of_block(Exponentials mine) {
  struct Warps {
    float top[kWarpSize], sum[kWarpSize], plain[kWarpSize];
  };
  Warps& warps = block_memory<Warps>();
  GPUTRAIN_UNROLL
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    Exponentials other;
    other.top = __shfl_xor_sync(kWholeWarp, mine.top, distance);
    other.sum = __shfl_xor_sync(kWholeWarp, mine.sum, distance);
    other.plain = __shfl_xor_sync(kWholeWarp, mine.plain, distance);
    mine.add(other);
  }
  if (thread_x() % kWarpSize == 0) {
    warps.top[thread_x() / kWarpSize] = mine.top;
    warps.sum[thread_x() / kWarpSize] = mine.sum;
    warps.plain[thread_x() / kWarpSize] = mine.plain;
  }
  __syncthreads();
  Exponentials all;
  for (int warp = 0; warp < threads_x() / kWarpSize; ++warp) {
    Exponentials other;
    other.top = warps.top[warp];
    other.sum = warps.sum[warp];
    other.plain = warps.plain[warp];
    all.add(other);
  }
  return all;
}

template <class T, int kVector>
__device__ void overwrite(T* row, int64_t target, bool counts, float lse, float weight, const CrossEntropyRows& p) {
  const float even = p.smoothing / static_cast<float>(p.classes);
  for (int64_t column = thread_x() * kVector; column < p.columns; column += threads_x() * kVector) {
    const int count = counts ? classes_from<kVector>(column, p.classes) : 0;
    float x[kVector];
    load(row + column, x);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) {
      const float hit = column + k == target ? 1 - p.smoothing : 0.0F;
      x[k] = k < count ? (__expf(x[k] - lse) - even - hit) * weight : 0.0F;
    }
    store(row + column, x);
  }
}

template <class T, int kVector>
__global__ void __launch_bounds__(kMostThreads, 2) cross_entropy_kernel(CrossEntropyRows p) {
  const int64_t row = block_x(), target = p.targets[row];
  const bool counts = target != p.ignored, is_class = target >= 0 && target < p.classes;
  const bool is_second = p.lse != nullptr && p.weight != nullptr;
  T* const logits = static_cast<T*>(p.logits) + row * p.columns;
  float lse = is_second ? p.lse[row] : 0.0F, loss = 0;
  if (counts && !is_second) {
    // Read before the barrier: after it, another thread may overwrite the logit.
    const float at_target = is_class ? widen(logits[target]) : 0.0F;
    const Exponentials all = of_block(of_thread<T, kVector>(logits, p.classes));
    lse = is_class ? all.lse() : NAN;
    loss = lse - at_target;
    if (p.smoothing > 0)
      loss = (1 - p.smoothing) * loss + p.smoothing * (lse - all.plain / static_cast<float>(p.classes));
  }
  if (thread_x() == 0 && !is_second) {
    p.loss[row] = loss;
    if (p.lse != nullptr) p.lse[row] = lse;
  }
  if (p.weight == nullptr) return;
  const float weight = static_cast<float>(p.weight[is_second ? row : 0]);
  overwrite<T, kVector>(logits, target, counts, lse, weight, p);
}

template <class T, int kVector>
__global__ void __launch_bounds__(kMostThreads) scale_logits_kernel(CrossEntropyRows p) {
  const float weight = static_cast<float>(*p.weight);
  if (weight == 1) return;
  T* const row = static_cast<T*>(p.logits) + static_cast<int64_t>(block_x()) * p.columns;
  for (int64_t column = thread_x() * kVector; column < p.columns; column += threads_x() * kVector) {
    float x[kVector];
    load(row + column, x);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) x[k] *= weight;
    store(row + column, x);
  }
}

/// Launches one block per row. `packed` and `single` are the kernels for packs of columns and for single columns.
template <class T, class Kernel>
void launch_rows(const CrossEntropyRows& p, Kernel packed, Kernel single, Stream stream) {
  constexpr int kVector = kPackOf<T>;
  const bool is_whole = is_packed(p.columns, kVector, p.logits);
  const int64_t warps = divided_up(p.columns, int64_t{kWarpSize} * (is_whole ? kVector : 1));
  const dim3 threads{extent(warps * kWarpSize < kMostThreads ? warps * kWarpSize : kMostThreads), 1, 1};
  launch(is_whole ? packed : single, dim3{extent(p.rows), 1, 1}, threads, stream, p);
}

}  // namespace

void cross_entropy(const CrossEntropyRows& p, Stream stream) {
  with_type(p.element, [&](auto type) {
    using T = decltype(type);
    launch_rows<T>(p, cross_entropy_kernel<T, kPackOf<T>>, cross_entropy_kernel<T, 1>, stream);
  });
}

void scale_logits(const CrossEntropyRows& p, Stream stream) {
  with_type(p.element, [&](auto type) {
    using T = decltype(type);
    launch_rows<T>(p, scale_logits_kernel<T, kPackOf<T>>, scale_logits_kernel<T, 1>, stream);
  });
}

}  // namespace gputrain::ops::cuda
