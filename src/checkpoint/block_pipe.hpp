// Moves bytes between disk and memory in large blocks: one side fills a block while the other drains the previous one.
// Blocks are aligned for direct I/O and are physically contiguous if the kernel has huge pages: the disk then gets a
// few long requests per block instead of 512 short ones.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace gputrain::checkpoint {

/// Between two threads: one fills, the other drains.
class BlockPipe {
 public:
  /// Small enough that data is still in the core's L2 cache when it is copied after hashing: blocks of 8 MiB take 1.5
  /// times as long to read.
  static constexpr size_t kBlockBytes = size_t{2} << 20;
  static constexpr size_t kBlocks = 4;

  BlockPipe();

  /// Waits for an empty block of kBlockBytes and returns it; null if the draining side has stopped. Rethrows the
  /// draining side's failure.
  char* begin_fill();
  void end_fill(size_t bytes);

  /// Waits for the next filled block, in order; empty at the end. Rethrows the filling side's failure.
  std::string_view begin_drain();
  void end_drain();

  /// Ends the pipe. Filling side: no more data. Draining side: no more is wanted.
  void stop();
  /// Ends like stop(), but the other side's next call throws this.
  void fail(std::exception_ptr reason);
  /// Waits until every filled block is drained or the draining side has stopped. Rethrows its failure.
  void wait_until_drained();

 private:
  char* block(size_t number) { return blocks_ + number % kBlocks * kBlockBytes; }
  void throw_failure() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  at::Tensor memory_;  // a tensor: if memory runs out, its allocator first frees what it cached for training
  char* blocks_;       // kBlocks consecutive blocks in memory_
  std::array<size_t, kBlocks> bytes_{};
  size_t filled_ = 0, drained_ = 0;  // total numbers of blocks; they differ by at most kBlocks
  bool stopped_ = false;
  std::exception_ptr failure_;
};

}  // namespace gputrain::checkpoint
