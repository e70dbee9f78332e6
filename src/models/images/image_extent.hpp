// Height and width of activations, to count operations.
#pragma once

#include <cstdint>

namespace gputrain::models {

/// The activations after the strides so far.
struct ImageExtent {
  int64_t height, width;
  /// After a stride of 2, with a padding that keeps sizes at a stride of 1.
  void halve() { *this = {(height + 1) / 2, (width + 1) / 2}; }
  double pixels() const { return static_cast<double>(height * width); }
};

}  // namespace gputrain::models
