// Second half of every sum over rows: adds up the blocks' partial sums in a fixed order.
// Registers: column_sums_kernel 32
#include "device.cuh"

namespace gputrain::ops::cuda {
namespace {

constexpr int kColumns = 32, kWorkers = 16;

__global__ void __launch_bounds__(kColumns* kWorkers) column_sums_kernel(ColumnSums p) {
  struct Sums {
    float of[kWorkers][kColumns];
  };
  Sums& sums = block_memory<Sums>();
  const int64_t column = static_cast<int64_t>(block_x()) * kColumns + thread_x();
  const bool is_inside = column < 2 * p.width;
  float sum = 0;
  if (is_inside) {
    for (int64_t part = thread_y(); part < p.parts; part += kWorkers) sum += p.partials[2 * part * p.width + column];
  }
  sums.of[thread_y()][thread_x()] = sum;
  __syncthreads();
  if (thread_y() != 0 || !is_inside) return;
  for (int worker = 1; worker < kWorkers; ++worker) sum += sums.of[worker][thread_x()];
  const bool is_first = column < p.width;
  const ColumnSums::Out out = is_first ? p.out[0] : p.out[1];
  if (out.values == nullptr) return;
  float& place = out.values[is_first ? column : column - p.width];
  place = out.adds ? place + sum : sum;
}

}  // namespace

void column_sums(const ColumnSums& p, Stream stream) {
  launch(column_sums_kernel, dim3{extent(divided_up(2 * p.width, kColumns)), 1, 1}, dim3{kColumns, kWorkers, 1}, stream,
         p);
}

}  // namespace gputrain::ops::cuda
