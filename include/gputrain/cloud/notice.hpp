// Notices of the cloud's metadata service that this machine is about to be taken away, and when.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/core/process.hpp"

namespace gputrain::cloud {

/// Job keys for notices.
struct NoticeSpec {
  std::string action = "save";
  config::Duration interval{5};

  bool watches() const noexcept { return action == "save"; }
  static void describe(config::Description<NoticeSpec>& d);
};

/// End of a rank's warning for a cloud notice. By it the launcher knows which host is about to be taken away.
inline constexpr std::string_view kMakesWay = ": the run saves and makes way";

/// Announcement of a cloud.
struct Notice {
  std::string cloud;  // "AWS"
  std::string event;  // word of the cloud: "terminate", "Preempt", ...
  std::chrono::steady_clock::time_point deadline;

  /// Returns the time until the machine may be gone; 0 after that moment.
  double seconds_left() const noexcept;
  /// Returns whether it is time to save and leave: at once with two minutes or less, as most spot machines get, but not
  /// an hour before planned maintenance. `save_seconds`: measured duration of a save; 0: unknown.
  bool is_urgent(double save_seconds) const noexcept;
  /// Returns "AWS announces terminate in 118 s".
  std::string text() const;
};

/// Metadata service to use instead of the cloud's own.
struct MetadataSource {
  std::string cloud;    // "aws", "google", "azure", "alibaba" or "tencent"
  std::string address;  // numeric IPv4
  uint16_t port = 80;

  friend bool operator==(const MetadataSource&, const MetadataSource&) = default;
};

/// Reads GPUTRAIN_METADATA_URL, for tests and for metadata behind a proxy: "aws=http://127.0.0.1:8080", several
/// separated by commas; unset: none. Throws Error(usage) for anything else.
std::vector<MetadataSource> read_metadata_sources(const Lookup& lookup);
std::vector<MetadataSource> read_metadata_sources();  // reads this process's environment

/// Watcher that finds out in the background which cloud this machine belongs to, then polls it. One per machine is
/// enough: on ranks with local rank 0. Errors of a service reach training only through take_remarks().
class NoticeWatcher {
 public:
  struct Options {
    double interval_seconds = 5;
    double answer_seconds = 2;            // limit for one request
    bool has_gpu = false;                 // Google announces maintenance of machines with GPUs an hour before
    std::vector<MetadataSource> sources;  // empty: every cloud at its own address; else only these
  };

  /// Starts the thread and returns at once.
  explicit NoticeWatcher(Options options);
  /// Returns at once, even while a service does not answer.
  ~NoticeWatcher();
  NoticeWatcher(const NoticeWatcher&) = delete;
  NoticeWatcher& operator=(const NoticeWatcher&) = delete;

  /// Returns the announcement in the newest valid answer; empty: none, or withdrawn. Cheap enough for every step.
  std::optional<Notice> notice() const;
  /// Returns remarks for the log, each once: about invalid answers, or a service that no longer answers.
  std::vector<std::string> take_remarks();
  /// Returns "AWS metadata polled every 5 s", "no cloud metadata service", or that the search is still running.
  std::string description() const;
  /// Waits for at most this time. Returns whether it is known which cloud this is, if any.
  bool wait_until_known(double seconds) const;

  struct Counts {
    int64_t polls = 0;   // polling rounds since the cloud was found
    int64_t failed = 0;  // requests without an answer, or with an error status
    int64_t junk = 0;    // invalid answers
  };
  Counts counts() const;

 private:
  class Poller;
  std::unique_ptr<Poller> poller_;  // null: the thread could not be started
  std::string failure_;
};

}  // namespace gputrain::cloud
