// What is known of every rank, and what follows from it: whether the run can go on, and if not, why, on one page.
//
// Rank 0 hears of all ranks and decides for them; the others hear of rank 0 only, and decide where that is lost.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/core/error.hpp"
#include "journal.hpp"

namespace gputrain::comm {

/// Why all ranks end.
struct Verdict {
  ExitCode code = ExitCode::restart;
  std::string cause;  // "rank 1 on node2 has not been heard from for 15 s"
  std::string page;   // the lines below it, each after a line feed
  std::string hint;
  int speaker = 0;  // the rank that shows the page; the others say the cause only

  /// As `rank` tells it; `happening`: what it was at, "all-reduce of gradients 3 broke off after 2.0 s", or nothing.
  Error error_of(int rank, const std::string& happening) const;
};

nlohmann::json to_json(const Verdict& verdict);
/// Throws nlohmann::json::exception.
Verdict verdict_from_json(const nlohmann::json& json);

/// A collective that broke off.
struct Failure {
  std::string message;  // the library's
  std::optional<Awaited> in;
};

class Roster {
 public:
  Roster(std::vector<std::string> hosts, int own_rank);

  void hear(int rank, Standing standing);
  /// The rank is gone. `how`: "has not been heard from for 15 s"
  void lose(int rank, std::string how);
  /// The rank has ended by itself; `failed`: by an error, whose message `words` is.
  void leave(int rank, std::string words, bool failed);

  bool is_here(int rank) const { return of(rank).life == Life::here; }
  /// Whether it is worth comparing what the ranks have called: they all have called what one of them has waited for so
  /// long, or what they have called up to a mark differs. True once for each such state.
  bool is_suspicious(double seconds);

  /// Whether a rank is lost, or has ended by an error; and that this ends the run.
  bool has_loss() const;
  std::optional<Verdict> loss() const;
  /// Ranks that called different collectives, as far as the calls are known, or that have waited for each other so
  /// long.
  std::optional<Verdict> disagreement(double seconds) const;
  /// What it means that a collective broke off, where nothing better is known.
  Verdict failure(const Failure& failure) const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Life { here, left, failed, lost };
  struct Rank {
    std::string host;
    Life life = Life::here;
    std::string words;  // of one that is not here: why
    Standing standing;
    Clock::time_point heard = Clock::now();
  };
  using Ranks = std::vector<int>;
  const Rank& of(int rank) const { return ranks_.at(static_cast<size_t>(rank)); }
  Rank& of(int rank) { return ranks_.at(static_cast<size_t>(rank)); }
  Ranks which(const std::function<bool(const Rank&)>& is_one) const;

  std::string name(int rank) const;
  std::string state(int rank) const;
  std::optional<Awaited> longest_wait() const;
  std::string page_about(const std::optional<Awaited>& what) const;
  std::optional<Verdict> different_calls(Channel channel) const;
  std::optional<Verdict> waiting_in_a_circle(double seconds) const;
  Verdict verdict(ExitCode code, std::string cause, std::string page) const;

  std::vector<Rank> ranks_;
  int own_rank_;
  std::pair<Channel, int64_t> suspected_{};  // what was compared last
};

}  // namespace gputrain::comm
