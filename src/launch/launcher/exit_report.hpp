// Why an attempt ended, and the one page that says so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../protocol/messages.hpp"
#include "gputrain/launch/launcher.hpp"

namespace gputrain::launch {

/// Something that ends an attempt before its time.
struct Cause {
  enum class Kind { rank_ended, rank_hangs, host_lost, not_started };
  /// How likely it is what began it all: a rank that ends because it lost its peers says so by its code, one that had
  /// been told to end may have had a reason of its own.
  enum class Weight { lost_its_peers, had_been_told, by_itself };
  Kind kind = Kind::rank_ended;
  std::string host;
  std::string story;  // of all but rank_ended: what happened
  RankEnd end = {};   // of a rank
  Weight weight = Weight::by_itself;

  /// "rank 1 on node2 (process 4711) was killed by SIGKILL (killed)"
  std::string text() const;
  int exit_code() const;
  /// Whether its last lines say what was wrong: one of ranks that end for one reason does.
  bool is_told() const;
  bool allows_restart() const;
};

/// Whether the end of a rank ends the attempt, and why. Empty: it went well, did what it was told, or made way: ranks
/// end with the code to start again without an error where they have agreed on it.
std::optional<Cause> cause_of(const RankEnd& end, const std::string& host);

struct ExitReport {
  Cause cause;
  std::vector<std::string> others;  // what happened besides, one line each
  int attempt = 1;
  double seconds = 0;  // of the attempt
  RunState state;
  bool is_heard = false;  // what the rank has said of its end stands right above the page
  std::string restarts;   // why there is no further one: "no restart is left (launch.max_restarts: 3)"

  std::string page() const;
};

/// "from step 20", "from the start"
std::string resume_text(const RunState& state);

}  // namespace gputrain::launch
