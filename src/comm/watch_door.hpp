// Where the other ranks come to rank 0's watch: whoever is one of them says so first, and knows the secret; everyone
// else is sent away.
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
struct WatchLink {
  explicit WatchLink(int descriptor);
  LineReader in;
  LineWriter out;
  Clock::time_point heard = Clock::now();

  void add_to(Poll& poll) const;
};

/// How a rank says who it is.
std::string hello_of(int rank, const std::string& secret);

class WatchDoor {
 public:
  struct Arrival {
    int rank = 0;
    std::unique_ptr<WatchLink> link;
    std::vector<std::string> lines;  // what it has said besides
  };

  /// `listener`: negative where nobody comes. Ranks from 1 on are awaited, each for at most `silence`.
  WatchDoor(int listener, int ranks, std::string secret, std::chrono::milliseconds silence);

  void add_to(Poll& poll) const;
  /// Those who have come since the last call.
  std::vector<Arrival> attend();
  /// Ranks that have not come in time.
  std::vector<int> overdue() const;
  /// The time of all who are awaited begins anew.
  void restart_timeouts();

 private:
  void accept();
  bool is_awaited(const std::string& hello, int& rank) const;

  Acceptor acceptor_;
  std::string secret_;
  std::chrono::milliseconds silence_;
  size_t most_strangers_;
  std::vector<std::unique_ptr<WatchLink>> strangers_;  // that have not said who they are
  std::map<int, Clock::time_point> awaited_;           // since when
};

}  // namespace gputrain::comm
