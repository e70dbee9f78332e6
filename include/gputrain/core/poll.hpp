// Waits for several descriptors and for signals in one place, without threads.
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

/// The descriptors and the deadline of one wait: build a new Poll for each wait. Ignores negative descriptors.
class Poll {
 public:
  void add(int descriptor, short events = POLLIN);
  /// Ends the wait at `moment` at the latest.
  void wake_at(Clock::time_point moment) { latest_ = std::min(latest_, moment); }
  void wait();
  bool is_ready(int descriptor) const;

 private:
  std::vector<pollfd> entries_;
  Clock::time_point latest_ = Clock::time_point::max();
};

/// Blocks the given signals for its lifetime and reads them from a descriptor. A SIGHUP that is ignored stays ignored.
class SignalReader {
 public:
  explicit SignalReader(std::initializer_list<int> signals);
  ~SignalReader();
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;

  int descriptor() const noexcept { return descriptor_.get(); }
  /// Returns the next pending signal; does not block.
  std::optional<int> next();

 private:
  sigset_t before_{};
  Descriptor descriptor_;
};

}  // namespace gputrain
