// Host memory that a GPU's tensors are copied to: page-locked, which is several times as fast, where the system grants
// it.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gputrain::device {

/// Hands out pieces of few large blocks: to lock pages takes long each time, and ATen's allocator rounds every request
/// up to a power of two.
class Staging {
 public:
  /// What is going to be asked for, from here on: so large the blocks are made.
  void expect(int64_t bytes) { expected_ = bytes; }

  /// Uninitialised, of elements side by side in any order. From the first refusal on, which is told once, it is
  /// ordinary memory: copies then take longer.
  at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type);

  /// Hands out no more of the blocks there are: they are given back with the last tensor in them.
  void release() { blocks_.clear(); }

 private:
  struct Block {
    at::Tensor bytes;
    int64_t used = 0;
  };
  Block& block_with(int64_t bytes);

  std::vector<Block> blocks_;
  int64_t expected_ = 0;
  bool is_refused_ = false;
};

}  // namespace gputrain::device
