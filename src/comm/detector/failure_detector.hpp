// The failure detector: sends heartbeats that say what this rank is doing, and notices when those of another rank stop.
// It has its own thread and connections, so it works while the ranks wait in a collective, compute, or read.
//
// Rank 0 coordinates: all ranks report to it, and it tells them when they all have to end, and why. A slow rank that
// sends heartbeats is left alone; a rank that is stopped, or whose host is gone, is lost after `silence`.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collective_log.hpp"
#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/poll.hpp"
#include "heartbeat_listener.hpp"
#include "peer_table.hpp"

namespace gputrain::comm {

class FailureDetector {
 public:
  struct Options {
    int rank = 0;
    std::vector<std::string> hosts;  // of each rank
    std::string secret;              // proves that a connection is a rank's
    std::chrono::milliseconds silence{}, grace{};
  };
  /// `socket`: a listening one on rank 0, on the others one connected to it. Takes ownership.
  FailureDetector(Options options, int socket);
  /// Announces this rank's departure, as a failure if an exception is being thrown.
  ~FailureDetector();
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  int rank() const noexcept { return options_.rank; }
  CollectiveLog& collective_log() noexcept { return collective_log_; }
  /// Does what CollectiveLog::enter() does, and sends a heartbeat soon if the place changed.
  void enter(const char* phase, int64_t step);

  /// Sets the places of the ranks in a mesh, for messages.
  void set_places(std::vector<PeerPlace> places);

  /// Returns why this rank has to end; empty: it need not. After a verdict the process has `grace` to end in good
  /// order.
  std::optional<RunVerdict> verdict() const;
  /// Reports a failed collective and waits a moment for the verdict. Empty: none came, or rank 0 is gone.
  std::optional<RunVerdict> explain(Failure failure);
  /// Reports like explain(), without waiting.
  void report(Failure failure);
  /// Says that this rank ends by itself.
  void leave(Departure departure);
  /// Returns, after leave() with an error, whether this rank reports it to the user. Among ranks that fail with the
  /// same message only one does: rank 0, if it is among the first. Waits a moment for the coordinator's choice.
  bool is_reporter();
  /// Limits, after leave(), the time to release resources: the process has `grace` for that, then it is ended with this
  /// error. `is_reported`: another rank prints the error.
  void end_by(const Error& error, bool is_reported);
  /// Sets a function that is called before this thread ends a process whose main thread is stuck; null: none is. Does
  /// not return if that has begun, so that what the handler uses outlives it.
  void set_forced_exit_handler(std::function<void(const Error&)> on_forced_exit);

 private:
  void run();
  void wait();
  void restart_timeouts();
  void accept_links();
  void read(int rank, HeartbeatLink& link);
  void take(int rank, std::string_view line);
  void take_message(int rank, const nlohmann::json& message);
  void take_reports();
  void note_failure(Failure failure);
  void heartbeat(bool with_calls);
  void check_timeouts();
  void gather();
  bool has_gathered();
  void decide();
  void announce(const RunVerdict& verdict);
  void end_if_overdue();
  struct End {  // end of a process by force
    Error error;
    bool is_reported = false;  // another rank reports it
    Clock::time_point at;
  };
  std::optional<End> end_due();
  [[noreturn]] void end(const End& how, const std::function<void(const Error&)>& on_forced_exit);
  void announce_departure();
  void name_reporters();
  void take_reporter(int rank);
  void tell_all(const std::string& message);
  bool is_coordinator() const noexcept { return options_.rank == 0; }

  const Options options_;
  CollectiveLog collective_log_;
  Descriptor wake_event_;       // wakes the thread
  Clock::time_point hastened_;  // when enter() last asked for an early heartbeat

  // Used by the watch thread only.
  HeartbeatListener listener_;
  std::map<int, std::unique_ptr<HeartbeatLink>> links_;
  PeerTable peers_;
  std::optional<Failure> failure_;
  struct Gathering {  // collects what every rank is doing and has called, before a verdict
    Clock::time_point until;
    std::set<int> missing;
  };
  std::optional<Gathering> gathering_;
  std::vector<std::pair<int, std::string>> failed_ranks_;  // with their messages; no reporter chosen yet
  Clock::time_point reporters_due_;
  std::map<std::string, int> reporters_;  // the rank that reports each message
  Clock::time_point next_heartbeat_ = Clock::now(), awake_ = Clock::now();
  bool has_news_ = false;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::atomic<bool> has_verdict_ = false, hastens_ = false;
  std::optional<RunVerdict> verdict_;
  Clock::time_point end_at_;
  std::vector<Failure> reports_;
  std::vector<PeerPlace> places_;  // places that the watch thread has not taken yet
  std::optional<Departure> departure_;
  std::optional<int> reporter_;                     // the rank that reports our error message
  std::optional<Departure> coordinator_departure_;  // announced by rank 0
  std::optional<End> own_end_;
  bool departure_announced_ = false, ends_by_itself_ = false, has_no_coordinator_ = false, stops_ = false,
       ends_process_ = false;
  std::function<void(const Error&)> on_forced_exit_;

  std::thread thread_;
};

}  // namespace gputrain::comm
