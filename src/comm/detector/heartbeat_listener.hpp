// The end of rank 0's watch to which the other ranks connect. A rank first says who it is and proves it with the
// secret; all other connections are closed.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gputrain/core/acceptor.hpp"
#include "gputrain/core/lines.hpp"
#include "gputrain/core/poll.hpp"

namespace gputrain::comm {

/// The connection to another rank's watch.
struct HeartbeatLink {
  explicit HeartbeatLink(int descriptor);
  LineReader in;
  LineWriter out;
  Clock::time_point heard = Clock::now();

  void add_to(Poll& poll) const;
};

/// Returns the first line that a rank sends.
std::string hello_of(int rank, const std::string& secret);

class HeartbeatListener {
 public:
  struct Arrival {
    int rank = 0;
    std::unique_ptr<HeartbeatLink> link;
    std::vector<std::string> lines;  // lines that it sent after the first
  };

  /// `listener`: negative on all ranks but 0. Expects ranks from 1 on, each within `silence`.
  HeartbeatListener(int listener, int ranks, std::string secret, std::chrono::milliseconds silence);

  void add_to(Poll& poll) const;
  /// Returns the ranks that have connected since the last call.
  std::vector<Arrival> attend();
  /// Returns ranks that have not connected in time.
  std::vector<int> overdue() const;
  /// Restarts the timeouts of all expected ranks.
  void restart_timeouts();

 private:
  void accept();
  bool is_awaited(const std::string& hello, int& rank) const;

  Acceptor acceptor_;
  std::string secret_;
  std::chrono::milliseconds silence_;
  size_t most_strangers_;
  std::vector<std::unique_ptr<HeartbeatLink>> strangers_;  // not identified yet
  std::map<int, Clock::time_point> awaited_;               // expected ranks, since when
};

}  // namespace gputrain::comm
