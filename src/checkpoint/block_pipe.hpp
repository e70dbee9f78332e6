// Bytes on their way between a disk and memory, in large blocks: one side fills a block while the other empties the one
// before it. Blocks start at addresses that direct input and output ask for, and are one piece of physical memory each
// where the kernel has one: a disk then gets a block in a few long requests instead of 512 short ones.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace gputrain::checkpoint {

/// Between two threads: one fills, one drains.
class BlockPipe {
 public:
  /// What is hashed and then copied is still in the core's second cache: 8 MiB take half as long again to read.
  static constexpr size_t kBlockBytes = size_t{2} << 20;
  static constexpr size_t kBlocks = 4;

  BlockPipe();

  /// A block of kBlockBytes to fill, once there is an empty one; null when the draining side has stopped. Rethrows what
  /// the draining side failed with.
  char* begin_fill();
  void end_fill(size_t bytes);

  /// The next block in order, once it is filled; empty at the end. Rethrows what the filling side failed with.
  std::string_view begin_drain();
  void end_drain();

  /// Filling: there is no more. Draining: no more is wanted.
  void stop();
  /// As stop(); the other side's next call throws this.
  void fail(std::exception_ptr reason);
  /// Returns when every filled block was drained, or the draining side has stopped; rethrows its failure.
  void wait_until_drained();

 private:
  char* block(size_t number) { return blocks_ + number % kBlocks * kBlockBytes; }
  void throw_failure() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  at::Tensor memory_;  // a tensor's, as what training keeps of it for later is given up for the next one
  char* blocks_;       // kBlocks of them, one after the other, in memory_
  std::array<size_t, kBlocks> bytes_{};
  size_t filled_ = 0, drained_ = 0;  // blocks so far; at most kBlocks apart
  bool stopped_ = false;
  std::exception_ptr failure_;
};

}  // namespace gputrain::checkpoint
