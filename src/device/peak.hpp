// Peak memory since the last reset, with pauses that do not count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

namespace gputrain::device {

class Peak {
 public:
  /// `read` returns the peak since the last reset; `reset` sets the peak to the current usage.
  Peak(std::function<int64_t()> read, std::function<void()> reset) : read_(std::move(read)), reset_(std::move(reset)) {}

  int64_t bytes() {
    const std::lock_guard lock(mutex_);
    return pauses_ > 0 ? kept_ : std::max(kept_, read_());
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    kept_ = 0;
    reset_();
  }
  /// Stops counting until resume() was called as often as pause().
  void pause() {
    const std::lock_guard lock(mutex_);
    if (pauses_++ == 0) kept_ = std::max(kept_, read_());
  }
  void resume() {
    const std::lock_guard lock(mutex_);
    if (--pauses_ == 0) reset_();
  }

 private:
  std::function<int64_t()> read_;
  std::function<void()> reset_;
  std::mutex mutex_;
  int64_t kept_ = 0;  // peak up to the last pause
  int pauses_ = 0;
};

}  // namespace gputrain::device
