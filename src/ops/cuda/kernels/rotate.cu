// Rotary positions; a row is one position of one head.
// Registers: rotate_kernel 64
#include "activation.hpp"

#include "columns.cuh"

namespace gputrain::ops::cuda {
namespace {

template <class T, int kVector>
__global__ void __launch_bounds__(kColumnThreads) rotate_kernel(Rotation p) {
  const ColumnWalk<kVector> walk(p.batch * p.heads * p.time, p.half);
  for (int64_t row = walk.first; row < walk.end; row += walk.step) {
    const int64_t time = row % p.time, head = row / p.time % p.heads, batch = row / p.time / p.heads;
    const auto place = [&](const Rotation::Strides& strides) {
      return batch * strides.batch + head * strides.head + time * strides.time + walk.column;
    };
    const T* const x = static_cast<const T*>(p.x) + place(p.x_strides);
    T* const y = static_cast<T*>(p.y) + place(p.y_strides);
    float low[kVector], high[kVector], cosine[kVector], sine[kVector];
    load(x, low);
    load(x + p.half, high);
    const int64_t entry = (p.tables_of_rows ? batch * p.time + time : time) * p.half + walk.column;
    load_floats(p.cosine + entry, cosine);
    load_floats(p.sine + entry, sine);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) {
      const float turned = sine[k] * p.direction, kept = low[k];
      low[k] = low[k] * cosine[k] - high[k] * turned;
      high[k] = high[k] * cosine[k] + kept * turned;
    }
    store(y, low);
    store(y + p.half, high);
  }
}

}  // namespace

void rotate(const Rotation& p, Stream stream) {
  with_type(p.element, [&](auto type) {
    using T = decltype(type);
    constexpr int kVector = kPackOf<T>;
    const auto packs = [](const Rotation::Strides& strides) {
      return strides.batch % kVector == 0 && strides.head % kVector == 0 && strides.time % kVector == 0;
    };
    const bool packed =
        is_packed(p.half, kVector, p.x, p.y, p.cosine, p.sine) && packs(p.x_strides) && packs(p.y_strides);
    constexpr int64_t kRowsOfThread = 4;
    const int64_t rows = p.batch * p.heads * p.time;
    ColumnGrid grid = column_grid(p.half, packed ? kVector : 1, 1);
    const int64_t parts = divided_up(rows, grid.threads.y * kRowsOfThread);
    grid.blocks.y = extent(parts < 65535 ? parts : 65535);
    launch(packed ? rotate_kernel<T, kVector> : rotate_kernel<T, 1>, grid.blocks, grid.threads, stream, p);
  });
}

}  // namespace gputrain::ops::cuda
