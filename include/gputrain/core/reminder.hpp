// When to tell a person, again, what the program waits for.
#pragma once

#include <chrono>

#include "gputrain/core/poll.hpp"

namespace gputrain {

/// Due after `first`, then once a minute.
class Reminder {
 public:
  explicit Reminder(std::chrono::milliseconds first) : next_(Clock::now() + first) {}

  Clock::time_point next() const noexcept { return next_; }
  bool is_due() {
    if (Clock::now() < next_) return false;
    next_ = Clock::now() + std::chrono::minutes(1);
    return true;
  }

 private:
  Clock::time_point next_;
};

}  // namespace gputrain
