// Host memory that a GPU's tensors are copied to: page-locked, which is several times as fast, where the system grants
// it.
#pragma once

#include <ATen/core/Tensor.h>

namespace gputrain::device {

class Staging {
 public:
  /// Uninitialised. From the first refusal on, which is told once, it is ordinary memory: copies then take longer.
  at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type);

 private:
  bool is_refused_ = false;
};

}  // namespace gputrain::device
