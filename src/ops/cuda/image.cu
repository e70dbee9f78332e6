// Bytes to normalised numbers, a thread for each pixel.
// Registers: normalize_image_kernel 40
#include "image.hpp"

#include "device.cuh"

namespace gputrain::ops::cuda {
namespace {

constexpr int kThreads = 256, kMostChannels = 4;

template <class T, int kPadded>
__global__ void __launch_bounds__(kThreads) normalize_image_kernel(NormalizedImage p) {
  const int64_t pixel = static_cast<int64_t>(block_x()) * kThreads + thread_x();
  if (pixel >= p.pixels) return;
  float y[kPadded] = {};
  GPUTRAIN_UNROLL
  for (int c = 0; c < (kPadded < kMostChannels ? kPadded : kMostChannels); ++c) {
    if (c < p.channels) y[c] = static_cast<float>(p.x[pixel * p.channels + c]) * p.factor[c] + p.offset[c];
  }
  if constexpr (kPadded % 2 == 0) {
    store(static_cast<T*>(p.y) + pixel * kPadded, y);
  } else {
    GPUTRAIN_UNROLL
    for (int c = 0; c < kPadded; ++c) static_cast<T*>(p.y)[pixel * kPadded + c] = narrow<T>(y[c]);
  }
}

}  // namespace

void normalize_image(const NormalizedImage& p, Stream stream) {
  with_type(p.element, [&](auto type) {
    using T = decltype(type);
    const dim3 blocks{extent(divided_up(p.pixels, kThreads)), 1, 1}, threads{kThreads, 1, 1};
    switch (p.padded) {
      case 1:
        return launch(normalize_image_kernel<T, 1>, blocks, threads, stream, p);
      case 3:
        return launch(normalize_image_kernel<T, 3>, blocks, threads, stream, p);
      case 4:
        return launch(normalize_image_kernel<T, 4>, blocks, threads, stream, p);
      default:
        return launch(normalize_image_kernel<T, 8>, blocks, threads, stream, p);
    }
  });
}

}  // namespace gputrain::ops::cuda
