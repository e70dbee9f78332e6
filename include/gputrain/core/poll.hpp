// Waiting for several descriptors and for signals in one place, without threads.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <initializer_list>
#include <optional>
#include <vector>

#include "gputrain/core/descriptor.hpp"

namespace gputrain {

using Clock = std::chrono::steady_clock;

/// What to wait for, told anew for every wait; a negative descriptor is nothing.
class Poll {
 public:
  void add(int descriptor, short events = POLLIN);
  /// From now on the wait ends at this moment at the latest.
  void wake_at(Clock::time_point moment) { latest_ = std::min(latest_, moment); }
  void wait();
  bool is_ready(int descriptor) const;

 private:
  std::vector<pollfd> entries_;
  Clock::time_point latest_ = Clock::time_point::max();
};

/// While this lives its signals are not delivered but read here; SIGHUP alone stays ignored where it was.
class SignalReader {
 public:
  explicit SignalReader(std::initializer_list<int> signals);
  ~SignalReader();
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;

  int descriptor() const noexcept { return descriptor_.get(); }
  /// The next one, without waiting.
  std::optional<int> next();

 private:
  sigset_t before_{};
  Descriptor descriptor_;
};

}  // namespace gputrain
