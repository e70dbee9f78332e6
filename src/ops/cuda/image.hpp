// Images with channels last: from bytes to the stem's input, and the pooling after the stem.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

/// y = x factor + offset per channel, from bytes; channels that are added are 0.
struct NormalizedImage {
  Element element;
  int64_t pixels;                // of all images
  int channels;                  // at most 4
  int padded;                    // channels of y: 4 or 8, or `channels`
  const uint8_t* x;              // [pixels, channels]
  const float *factor, *offset;  // [channels]: 1 / (255 deviation), -mean / deviation
  void* y;                       // [pixels, padded]
};
void normalize_image(const NormalizedImage& p, Stream stream);

/// Maximum over windows of 3 x 3 with stride 2 and padding 1; the first of equals counts, a NaN always.
struct MaxPool {
  Element element;
  int64_t batch, height, width, channels;  // of x
  const void* x;                           // [batch, height, width, channels]
  void* y;                                 // [batch, (height + 1) / 2, (width + 1) / 2, channels]
  int8_t* index;                           // as y: the place in the window, row by row
  const void* dy;                          // as y; backward only, as what follows
  void* dx;                                // as x
};
void max_pool_forward(const MaxPool& p, Stream stream);
/// Each element of x collects from the windows that chose it, in a fixed order.
void max_pool_backward(const MaxPool& p, Stream stream);

}  // namespace gputrain::ops::cuda
