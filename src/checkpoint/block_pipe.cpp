#include "block_pipe.hpp"

#include <cstdint>
#include <utility>

#include <ATen/ops/empty.h>
#include <sys/mman.h>

namespace gputrain::checkpoint {

/// A block is as large as a huge page and aligned to its size. A kernel without free huge pages uses small pages.
BlockPipe::BlockPipe()
    : memory_(at::empty({static_cast<int64_t>((kBlocks + 1) * kBlockBytes)}, at::TensorOptions().dtype(at::kByte))) {
  const auto begin = reinterpret_cast<uintptr_t>(memory_.mutable_data_ptr());
  blocks_ = reinterpret_cast<char*>((begin + kBlockBytes - 1) / kBlockBytes * kBlockBytes);
  ::madvise(blocks_, kBlocks * kBlockBytes, MADV_HUGEPAGE);
}

char* BlockPipe::begin_fill() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || filled_ < drained_ + kBlocks; });
  throw_failure();
  return stopped_ ? nullptr : block(filled_);
}

void BlockPipe::end_fill(size_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_[filled_ % kBlocks] = bytes;
  ++filled_;
  changed_.notify_all();
}

std::string_view BlockPipe::begin_drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || drained_ < filled_; });
  throw_failure();
  if (drained_ == filled_) return {};
  return {block(drained_), bytes_[drained_ % kBlocks]};
}

void BlockPipe::end_drain() {
  const std::lock_guard lock(mutex_);
  ++drained_;
  changed_.notify_all();
}

void BlockPipe::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void BlockPipe::fail(std::exception_ptr reason) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(reason);
  stopped_ = true;
  changed_.notify_all();
}

void BlockPipe::wait_until_drained() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return failure_ != nullptr || drained_ == filled_; });
  throw_failure();
}

void BlockPipe::throw_failure() const {
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace gputrain::checkpoint
