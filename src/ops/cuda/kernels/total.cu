// Sums of many numbers in a fixed order, in double. One block of 1024 threads: each may have 64 registers.
// Registers: total_kernel 64
#include "device.cuh"

namespace gputrain::ops::cuda {
namespace {

constexpr int kThreads = 1024;

template <class T>
__global__ void __launch_bounds__(kThreads) total_kernel(const T* values, int64_t count, double* out) {
  struct Sums {
    double of[kThreads / kWarpSize];
  };
  Sums& sums = block_memory<Sums>();
  double sum = 0;
  for (int64_t i = thread_x(); i < count; i += kThreads) sum += static_cast<double>(values[i]);
  sum = warp_sum(sum);
  if (thread_x() % kWarpSize == 0) sums.of[thread_x() / kWarpSize] = sum;
  __syncthreads();
  if (thread_x() != 0) return;
  for (int warp = 1; warp < kThreads / kWarpSize; ++warp) sum += sums.of[warp];
  *out = sum;
}

}  // namespace

void total(const float* values, int64_t count, double* out, Stream stream) {
  launch(total_kernel<float>, dim3{1, 1, 1}, dim3{kThreads, 1, 1}, stream, values, count, out);
}

void total(const double* values, int64_t count, double* out, Stream stream) {
  launch(total_kernel<double>, dim3{1, 1, 1}, dim3{kThreads, 1, 1}, stream, values, count, out);
}

}  // namespace gputrain::ops::cuda
