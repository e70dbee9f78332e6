// Second half of every sum over rows: adds up the blocks' partial sums in a fixed order.
// Registers: column_sum_kernel 32
#include "device.cuh"

namespace gputrain::ops::cuda {
namespace {

constexpr int kColumns = 32, kWorkers = 16;

__global__ void __launch_bounds__(kColumns* kWorkers) column_sum_kernel(ColumnSum p) {
  struct Sums {
    float of[kWorkers][kColumns];
  };
  Sums& sums = block_memory<Sums>();
  const int64_t column = static_cast<int64_t>(block_x()) * kColumns + thread_x();
  float sum = 0;
  if (column < p.columns) {
    for (int64_t part = thread_y(); part < p.parts; part += kWorkers) sum += p.partials[part * p.columns + column];
  }
  sums.of[thread_y()][thread_x()] = sum;
  __syncthreads();
  if (thread_y() != 0 || column >= p.columns) return;
  for (int worker = 1; worker < kWorkers; ++worker) sum += sums.of[worker][thread_x()];
  p.out[column] = sum;
}

}  // namespace

void column_sum(const ColumnSum& p, Stream stream) {
  launch(column_sum_kernel, dim3{extent(divided_up(p.columns, kColumns)), 1, 1}, dim3{kColumns, kWorkers, 1}, stream,
         p);
}

}  // namespace gputrain::ops::cuda
