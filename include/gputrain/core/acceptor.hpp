// Whoever connects to a listening socket, taken in without waiting.
#pragma once

#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/poll.hpp"

namespace gputrain {

class Acceptor {
 public:
  /// Owns the socket; negative: nobody comes.
  explicit Acceptor(int listener);

  void add_to(Poll& poll) const;
  /// The next one, whom the caller closes; negative: nobody, or this process may open no more files. Then those who
  /// come have to wait, and the user is told once.
  int next();

 private:
  Descriptor listener_;
  Clock::time_point rests_until_{};
  bool has_told_ = false;
};

}  // namespace gputrain
