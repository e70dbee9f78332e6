// Max-pooling of channels-last images, as after a ResNet's stem.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

/// Maximum over 3 x 3 windows with stride 2 and padding 1. Chooses the first of equal values, and always a NaN. At most
/// 2^31 - 1 pixels in all images together.
struct MaxPool {
  Element element;
  int64_t batch, height, width, channels;  // of x
  const void* x;                           // [batch, height, width, channels]
  void* y;                                 // [batch, (height + 1) / 2, (width + 1) / 2, channels]
  int8_t* index;                           // shape of y: position in the window, row by row
  const void* dy;                          // shape of y; backward only
  void* dx;                                // shape of x; backward only
};
void max_pool_forward(const MaxPool& p, Stream stream);
/// Sums, for each element of x, the gradients of the windows that chose it, in a fixed order.
void max_pool_backward(const MaxPool& p, Stream stream);

}  // namespace gputrain::ops::cuda
