#include "block_pipe.hpp"

#include <new>
#include <utility>

namespace gputrain::checkpoint {
namespace {

constexpr size_t kAlignment = 4096;

}  // namespace

BlockPipe::BlockPipe() {
  for (auto& memory : memory_) {
    memory.reset(static_cast<char*>(std::aligned_alloc(kAlignment, kBlockBytes)));
    if (memory == nullptr) throw std::bad_alloc();
  }
}

char* BlockPipe::begin_fill() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || filled_ < drained_ + memory_.size(); });
  throw_failure();
  return stopped_ ? nullptr : memory_[filled_ % memory_.size()].get();
}

void BlockPipe::end_fill(size_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_[filled_ % memory_.size()] = bytes;
  ++filled_;
  changed_.notify_all();
}

std::string_view BlockPipe::begin_drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || drained_ < filled_; });
  throw_failure();
  if (drained_ == filled_) return {};
  const size_t block = drained_ % memory_.size();
  return {memory_[block].get(), bytes_[block]};
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
