// Norm of a flat gradient, whether it is finite, and its divisor: one pass over the gradient, and the host reads
// nothing.
// Registers: square_sums_kernel 40, gradient_scalars_kernel 32
#include "optimizer.hpp"

#include "device.cuh"

namespace gputrain::ops::cuda {
namespace {

constexpr int kThreads = 512, kVector = 4;

/// Squares of four neighbours are summed in float, the rest in double: a float sum of millions loses digits.
template <class T>
__global__ void __launch_bounds__(kThreads) square_sums_kernel(const T* values, int64_t count, double* partials) {
  struct Sums {
    double of[kThreads / kWarpSize];
  };
  Sums& sums = block_memory<Sums>();
  const int64_t thread = static_cast<int64_t>(block_x()) * kThreads + thread_x();
  const int64_t threads = static_cast<int64_t>(blocks_x()) * kThreads, packs = count / kVector;
  double sum = 0;
  GPUTRAIN_UNROLL_4
  for (int64_t pack = thread; pack < packs; pack += threads) {
    float x[kVector];
    load(values + pack * kVector, x);
    sum += static_cast<double>((x[0] * x[0] + x[1] * x[1]) + (x[2] * x[2] + x[3] * x[3]));
  }
  const int64_t rest = packs * kVector + thread;
  if (rest < count) sum += static_cast<double>(widen(values[rest]) * widen(values[rest]));
  sum = warp_sum(sum);
  if (thread_x() % kWarpSize == 0) sums.of[thread_x() / kWarpSize] = sum;
  __syncthreads();
  if (thread_x() != 0) return;
  for (int warp = 1; warp < kThreads / kWarpSize; ++warp) sum += sums.of[warp];
  partials[block_x()] = sum;
}

__global__ void __launch_bounds__(kWarpSize) gradient_scalars_kernel(GradientScalars p) {
  if (thread_x() != 0) return;
  double norm = sqrt(*p.square);
  *p.found_inf = norm <= DBL_MAX ? 0.0F : 1.0F;  // 1 for a NaN, too
  const double scale = p.scale != nullptr ? static_cast<double>(*p.scale) : 1.0;
  norm /= scale;
  *p.norm = norm;
  double excess = 1;
  if (p.max_norm > 0 && !((norm + 1e-6) / p.max_norm <= 1)) excess = (norm + 1e-6) / p.max_norm;
  *p.divisor = static_cast<float>(scale * excess);
}

}  // namespace

void square_sums(Element element, const void* values, int64_t count, double* partials, int parts, Stream stream) {
  with_type(element, [&](auto type) {
    using T = decltype(type);
    launch(square_sums_kernel<T>, dim3{extent(parts), 1, 1}, dim3{kThreads, 1, 1}, stream,
           static_cast<const T*>(values), count, partials);
  });
}

void gradient_scalars(const GradientScalars& p, Stream stream) {
  launch(gradient_scalars_kernel, dim3{1, 1, 1}, dim3{kWarpSize, 1, 1}, stream, p);
}

}  // namespace gputrain::ops::cuda
