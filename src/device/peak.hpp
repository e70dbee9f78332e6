// The most that was held at one time, of which some times can be left out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

namespace gputrain::device {

class Peak {
 public:
  /// `read`: the most since the last reset; `reset`: from now on what is held now is the most.
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
  /// Until as many calls of resume(), nothing counts.
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
  int64_t kept_ = 0;  // until the last pause
  int pauses_ = 0;
};

}  // namespace gputrain::device
