// One start of all ranks, until the last of them has ended.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "exit_report.hpp"
#include "gputrain/launch/launcher.hpp"
#include "host_link.hpp"
#include "terminal.hpp"

namespace gputrain::launch {

class Attempt {
 public:
  struct MasterEndpoint {
    std::string address;
    int port = 0;
  };
  struct Start {
    int number = 1, restarts = 0;  // number: K of logs/start_K; restarts: by this launcher
    std::string logs;
    MasterEndpoint master;
  };

  /// Puts ranks on these hosts, in this order.
  Attempt(const LaunchRequest& request, const std::vector<HostLink*>& links, Terminal& terminal);

  void start(const Start& start);
  /// Sends a signal that asks the ranks to save and end; the first one starts the time limit launch.grace.
  void ask_to_stop(int signal);
  /// Ends the ranks without more time.
  void insist();
  /// Asks the ranks to save and end, to be started again on more hosts.
  void ask_to_grow();
  void pass_on(int signal);

  void take(HostLink& link, const nlohmann::json& message);
  /// Checks deadlines and lost hosts.
  void look();
  Clock::time_point next_deadline() const;

  size_t hosts() const noexcept { return parts_.size(); }
  bool is_over() const;
  bool is_ending() const noexcept { return is_ending_ || stop_signal_ != 0 || !ends_.empty(); }

  enum class Kind { done, stopped, makes_way, grows, failed };  // makes_way: not because we asked
  struct Result {
    Kind kind = Kind::done;
    int exit_code = 0;
  };
  Result result() const;
  /// Hosts about to be taken away, as their ranks reported.
  std::vector<HostLink*> leaving_hosts() const;
  /// Treats ranks that made way like ranks that lost their peers, so that they are started again.
  void blame_who_made_way();
  ExitReport report() const;
  const std::string& logs() const noexcept { return start_.logs; }

 private:
  struct Part {
    HostLink* link;
    int first_rank, ranks;
    bool is_lost = false;
  };
  void note(Cause cause);
  void note_laggards();
  void end_all(std::chrono::seconds grace);
  void take_status(const HostLink& link, const nlohmann::json& message);
  const Cause* main_cause() const;
  bool has_all_ends(const Part& part) const;
  const Part* part_of(int rank) const;
  std::string host_of(int rank) const;

  const LaunchRequest& request_;
  Terminal& terminal_;
  std::vector<Part> parts_;
  int world_size_ = 0;
  Start start_;
  Clock::time_point began_ = Clock::now();
  std::map<int, RankEnd> ends_;
  std::map<int, Clock::time_point> stopped_;  // stopped by a signal, since when
  std::vector<Cause> causes_;                 // in the order in which they became known
  int stop_signal_ = 0;
  std::set<int> unheard_;  // ranks with lines that were not printed
  bool grows_ = false, is_ending_ = false;
  std::optional<Clock::time_point> grace_ends_, hopeless_at_;
};

}  // namespace gputrain::launch
