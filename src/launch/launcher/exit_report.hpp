// Why ranks ended, and the page that explains it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../protocol/messages.hpp"
#include "gputrain/launch/launcher.hpp"

namespace gputrain::launch {

/// An event that ends all ranks early.
struct Cause {
  enum class Kind { rank_ended, rank_hangs, host_lost, not_started };
  /// The likelihood that it is the root cause. A rank that lost its peers says so by its exit code; a rank that had
  /// been told to end may have had its own reason.
  enum class Weight { lost_its_peers, had_been_told, by_itself };
  Kind kind = Kind::rank_ended;
  std::string host;
  std::string story;  // the event in words, for all but rank_ended
  RankEnd end = {};   // the rank and how it ended; empty for a lost host
  Weight weight = Weight::by_itself;

  /// Returns "rank 1 on node2 (process 4711) was killed by SIGKILL (killed)"
  std::string text() const;
  int exit_code() const;
  /// Returns whether the rank's last lines contain an error; of ranks that end for the same reason only one prints it.
  bool is_reported() const;
  bool allows_restart() const;
};

/// Returns the cause, if the end of this rank ends the others. Empty: it succeeded, did what it was told, or made way:
/// ranks that agreed to make way end with the code to start again and print no error.
std::optional<Cause> cause_of(const RankEnd& end, const std::string& host);

struct ExitReport {
  Cause cause;
  std::vector<std::string> others;  // other causes, one line each
  double seconds = 0;               // from the start of the ranks
  RunState state;
  bool measures = false;  // there is no run to go on with
  bool is_heard = false;  // the rank's error is already right above the page
  std::string restarts;   // why there is no further one: "no restart is left (launch.max_restarts: 3)"

  std::string page() const;
};

/// Returns "from step 20", "from the start"
std::string resume_text(const RunState& state);

}  // namespace gputrain::launch
