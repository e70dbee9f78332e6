// The known state of every rank, and the conclusion: whether the run can go on, and if not, why, on one page.
//
// Rank 0 hears from all ranks and decides for them. The others hear from rank 0 only, and decide when rank 0 is lost.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collective_log.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::comm {

/// The reason why all ranks end.
struct RunVerdict {
  ExitCode code = ExitCode::restart;
  std::string cause;  // "rank 1 on node2 has not been heard from for 15 s"
  std::string page;   // more lines, each after a line feed
  std::string hint;
  int speaker = 0;  // the rank that prints the page; the others print only the cause

  /// Returns the error as `rank` reports it; `happening`: what failed there, "all-reduce of gradients 3 failed after
  /// 2.0 s", or empty.
  Error error_of(int rank, const std::string& happening) const;
};

/// The end of a rank by itself.
struct Departure {
  bool failed = false;                // by an error
  ExitCode code = ExitCode::done;     // of the error
  std::string words = {}, hint = {};  // of the error: the first line of its message, and what to try
};

/// Returns the end by this error.
Departure departure_of(const Error& error);

/// A collective that failed.
struct Failure {
  std::string message;  // from the library
  std::optional<AwaitedCollective> in;
};

/// The place of a rank in the mesh.
struct PeerPlace {
  std::string text;              // added to its name: "stage 1, shard 0"; may be empty
  std::set<std::string> groups;  // groups of the mesh that it is in
};

class PeerTable {
 public:
  PeerTable(std::vector<std::string> hosts, int own_rank);

  void set_places(std::vector<PeerPlace> places);
  void hear(int rank, RankStatus status);
  /// Notes that the rank is lost. `how`: "has not been heard from for 15 s"
  void lose(int rank, std::string how);
  /// Notes that the rank has ended by itself.
  void leave(int rank, Departure end);

  bool is_here(int rank) const { return of(rank).life == Life::here; }
  /// Returns whether to compare the calls of all ranks: one rank has waited `seconds` for a collective that all have
  /// called, or the calls up to a mark differ. True once for each such state.
  bool is_suspicious(double seconds);

  /// Returns whether a rank is lost or has ended by an error; loss() is the verdict on that.
  bool has_loss() const;
  std::optional<RunVerdict> loss() const;
  /// Returns the verdict if ranks called different collectives, as far as the calls are known, or have all waited for
  /// each other for `seconds`.
  std::optional<RunVerdict> disagreement(double seconds) const;
  /// Returns the verdict on a failed collective if nothing better is known.
  RunVerdict failure(const Failure& failure) const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Life { here, left, failed, lost };
  struct Rank {
    std::string host;
    PeerPlace place = {};
    Life life = Life::here;
    Departure end = {};  // why it is not here
    RankStatus status;
    Clock::time_point heard = Clock::now();
  };
  using Ranks = std::vector<int>;
  const Rank& of(int rank) const { return ranks_.at(static_cast<size_t>(rank)); }
  Rank& of(int rank) { return ranks_.at(static_cast<size_t>(rank)); }
  Ranks which(const std::function<bool(const Rank&)>& is_one) const;

  std::string name(int rank) const;
  std::string names(const Ranks& ranks) const;
  std::string state(int rank) const;
  std::optional<AwaitedCollective> longest_wait() const;
  bool is_in(int rank, const std::string& group) const;
  /// Returns whether a rank has called the collective, as far as is known. Without a group: whether it has called as
  /// many as the caller in each group that both are in.
  bool has_called(int rank, const AwaitedCollective& what) const;
  Ranks ranks_of(const AwaitedCollective& what) const;
  Ranks missing_in(const AwaitedCollective& what) const;
  /// Returns the collective that keeps others from being called: a rank that is missing in `wait` may itself wait for a
  /// third one. If ranks wait for each other, returns the collective of the smallest group.
  AwaitedCollective cause_of(AwaitedCollective wait) const;
  std::string page_about(const std::optional<AwaitedCollective>& what) const;
  std::optional<RunVerdict> different_calls(const std::string& group) const;
  std::optional<RunVerdict> waiting_in_a_circle(double seconds) const;
  RunVerdict verdict(ExitCode code, std::string cause, std::string page) const;

  std::vector<Rank> ranks_;
  int own_rank_;
  std::pair<std::string, int64_t> suspected_;  // the state that was compared last
};

}  // namespace gputrain::comm
