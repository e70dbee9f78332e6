// Height and width of activations, for counting operations.
#pragma once

#include <cstdint>

namespace gputrain::models {

/// Size of the activations after the strides so far.
struct ImageExtent {
  int64_t height, width;
  /// Applies a stride of 2, with a padding that keeps sizes at a stride of 1.
  void halve() { *this = {(height + 1) / 2, (width + 1) / 2}; }
  double pixels() const { return static_cast<double>(height * width); }
};

}  // namespace gputrain::models
