// Accepts connections on a listening socket without blocking.
#pragma once

#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/poll.hpp"

namespace gputrain {

class Acceptor {
 public:
  /// Owns the socket. A negative value means that no connection ever comes.
  explicit Acceptor(int listener);

  void add_to(Poll& poll) const;
  /// Returns the next connection, which the caller closes. Negative: no connection waits, or the process has no free
  /// descriptor or memory. In the latter case it retries every second and warns once.
  int next();

 private:
  Descriptor listener_;
  Clock::time_point rests_until_{};
  bool has_told_ = false;
};

}  // namespace gputrain
