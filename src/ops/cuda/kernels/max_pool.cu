// Max-pooling of 3 x 3 windows with stride 2; one thread per pack of channels of a pixel.
// Registers: max_pool_forward_kernel 64, max_pool_backward_kernel 64
#include "max_pool.hpp"

#include "columns.cuh"

namespace gputrain::ops::cuda {
namespace {

constexpr int kWindow = 3, kStride = 2, kPadding = 1;

int64_t pooled(int64_t extent) { return (extent + 2 * kPadding - kWindow) / kStride + 1; }
__device__ inline int pooled_of(int extent) { return (extent + 2 * kPadding - kWindow) / kStride + 1; }

/// A row of 32 bits, because divisions of 64 bits would take longer than the memory.
struct Pixel {
  int image, y, x;
  __device__ Pixel(unsigned row, unsigned height, unsigned width) {
    const unsigned line = row / width, of = line / height;
    image = static_cast<int>(of);
    y = static_cast<int>(line - of * height);
    x = static_cast<int>(row - line * width);
  }
};

template <class T, int kVector>
__global__ void __launch_bounds__(kColumnThreads) max_pool_forward_kernel(MaxPool p) {
  const int height = static_cast<int>(p.height), width = static_cast<int>(p.width);
  const int out_height = pooled_of(height), out_width = pooled_of(width);
  const ColumnWalk<kVector> walk(p.batch * out_height * out_width, p.channels);
  for (int64_t row = walk.first; row < walk.end; row += walk.step) {
    const Pixel pixel(static_cast<unsigned>(row), static_cast<unsigned>(out_height), static_cast<unsigned>(out_width));
    float best[kVector];
    Pack<int8_t, kVector> index;
    bool is_first = true;
    for (int window = 0; window < kWindow * kWindow; ++window) {
      const int y = pixel.y * kStride - kPadding + window / kWindow;
      const int x = pixel.x * kStride - kPadding + window % kWindow;
      if (y < 0 || y >= height || x < 0 || x >= width) continue;
      float value[kVector];
      load(static_cast<const T*>(p.x) + ((pixel.image * p.height + y) * p.width + x) * p.channels + walk.column, value);
      GPUTRAIN_UNROLL
      for (int k = 0; k < kVector; ++k) {
        if (!is_first && !(value[k] > best[k]) && value[k] == value[k]) continue;
        best[k] = value[k];
        index.at[k] = static_cast<int8_t>(window);
      }
      is_first = false;
    }
    const int64_t to = row * p.channels + walk.column;
    store(static_cast<T*>(p.y) + to, best);
    check_aligned<Pack<int8_t, kVector>>(p.index + to);
    *reinterpret_cast<Pack<int8_t, kVector>*>(p.index + to) = index;
  }
}

template <class T, int kVector>
__global__ void __launch_bounds__(kColumnThreads) max_pool_backward_kernel(MaxPool p) {
  const int height = static_cast<int>(p.height), width = static_cast<int>(p.width);
  const int out_height = pooled_of(height), out_width = pooled_of(width);
  const ColumnWalk<kVector> walk(p.batch * p.height * p.width, p.channels);
  for (int64_t row = walk.first; row < walk.end; row += walk.step) {
    const Pixel pixel(static_cast<unsigned>(row), static_cast<unsigned>(height), static_cast<unsigned>(width));
    float dx[kVector] = {};
    // The windows that contain this pixel: at most two along each side.
    for (int y = pixel.y / kStride; y <= (pixel.y + 1) / kStride && y < out_height; ++y) {
      for (int x = pixel.x / kStride; x <= (pixel.x + 1) / kStride && x < out_width; ++x) {
        const auto window =
            static_cast<int8_t>((pixel.y - y * kStride + kPadding) * kWindow + (pixel.x - x * kStride + kPadding));
        const int64_t place = (static_cast<int64_t>(pixel.image) * out_height + y) * out_width + x;
        const int64_t from = place * p.channels + walk.column;
        float dy[kVector];
        load(static_cast<const T*>(p.dy) + from, dy);
        const auto index = load_pack<int8_t, kVector>(p.index + from);
        GPUTRAIN_UNROLL
        for (int k = 0; k < kVector; ++k) dx[k] += index.at[k] == window ? dy[k] : 0.0F;
      }
    }
    store(static_cast<T*>(p.dx) + row * p.channels + walk.column, dx);
  }
}

template <int kForward>
void run(const MaxPool& p, int64_t rows, Stream stream) {
  with_type(p.element, [&](auto type) {
    using T = decltype(type);
    constexpr int kVector = kPackOf<T>;
    const bool packed = is_packed(p.channels, kVector, kForward ? p.x : p.dy, kForward ? p.y : p.dx, p.index);
    ColumnGrid grid = column_grid(p.channels, packed ? kVector : 1, 1);
    const int64_t parts = divided_up(rows, grid.threads.y);
    grid.blocks.y = extent(parts < 65535 ? parts : 65535);
    const auto kernel = kForward ? (packed ? max_pool_forward_kernel<T, kVector> : max_pool_forward_kernel<T, 1>)
                                 : (packed ? max_pool_backward_kernel<T, kVector> : max_pool_backward_kernel<T, 1>);
    launch(kernel, grid.blocks, grid.threads, stream, p);
  });
}

}  // namespace

void max_pool_forward(const MaxPool& p, Stream stream) {
  run<true>(p, p.batch * pooled(p.height) * pooled(p.width), stream);
}

void max_pool_backward(const MaxPool& p, Stream stream) { run<false>(p, p.batch * p.height * p.width, stream); }

}  // namespace gputrain::ops::cuda
