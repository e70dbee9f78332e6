// Host memory for copies of GPU tensors: page-locked if the system allows it, which makes copies several times faster.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gputrain::device {

/// Allocates from a few large blocks, because locking pages is slow and ATen's pinned allocator rounds each request up
/// to a power of two.
class Staging {
 public:
  /// Sets the total bytes of the coming requests, which determines the size of new blocks.
  void expect(int64_t bytes) { expected_ = bytes; }

  /// Returns uninitialised memory for a dense tensor with any strides. After the first refusal, which it warns about
  /// once, it returns ordinary memory, to which copies are slower.
  at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type);

  /// Allocates no more from the current blocks; each is freed with the last tensor in it.
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
