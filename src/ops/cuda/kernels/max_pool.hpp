// The pooling of images with channels last that follows a stem.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

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
