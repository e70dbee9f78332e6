// One start of all ranks, from its beginning to the end of the last of them.
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
  struct Place {
    std::string address;
    int port = 0;
  };
  struct Start {
    int number = 1, restarts = 0;  // number: in its run folder; restarts: of this launcher
    std::string logs;
    Place place;
  };

  /// Ranks on these hosts, in this order.
  Attempt(const LaunchRequest& request, const std::vector<HostLink*>& links, Terminal& terminal);

  void start(const Start& start);
  /// A signal that asks the ranks to save and end, in the time that launch.grace gives from the first one on.
  void ask_to_stop(int signal);
  /// No more time.
  void insist();
  /// The ranks save and end, to be started again on more hosts.
  void ask_to_grow();
  void pass_on(int signal);

  void take(HostLink& link, const nlohmann::json& message);
  /// Looks at deadlines and at hosts that were lost.
  void look();
  Clock::time_point next_deadline() const;

  size_t hosts() const noexcept { return parts_.size(); }
  bool is_over() const;
  bool is_ending() const noexcept { return is_ending_ || stop_signal_ != 0 || !ends_.empty(); }

  enum class Kind { done, stopped, makes_way, grows, failed };  // makes_way: of itself
  struct Result {
    Kind kind = Kind::done;
    int exit_code = 0;
  };
  Result result() const;
  /// Hosts about to be taken away, for which ranks have made way.
  std::vector<HostLink*> leaving_hosts() const;
  /// Ranks that have made way are to be started again, as others that ended before their time.
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
  void take_fate(const HostLink& link, const nlohmann::json& message);
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
  std::map<int, Clock::time_point> stopped_;  // ranks that stand still, since when
  std::vector<Cause> causes_;                 // in the order in which they became known
  int stop_signal_ = 0;
  std::set<int> unheard_;  // ranks of which lines have not been passed on
  bool grows_ = false, is_ending_ = false;
  std::optional<Clock::time_point> grace_ends_, hopeless_at_;
};

}  // namespace gputrain::launch
