// Learns from the cloud's metadata service that this machine is about to be taken away, and how soon.
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

/// The keys of the job about notices.
struct NoticeSpec {
  std::string action = "save";
  config::Duration interval{5};

  bool watches() const noexcept { return action == "save"; }
  static void describe(config::Description<NoticeSpec>& d);
};

/// What a rank's warning ends with when it has the run make way for what its cloud announces: so the launcher knows
/// which host is about to be taken away.
inline constexpr std::string_view kMakesWay = ": the run saves and makes way";

/// What a cloud announced.
struct Notice {
  std::string cloud;  // "AWS"
  std::string event;  // the cloud's word: "terminate", "Preempt", ...
  std::chrono::steady_clock::time_point deadline;

  /// Until the machine may be gone; 0 once that moment has passed.
  double seconds_left() const noexcept;
  /// Whether it is time to save and leave: at once for the two minutes, or less, that spot machines are given, but not
  /// an hour before a planned maintenance. `save_seconds`: how long saving takes, as measured, 0 if not known yet.
  bool is_urgent(double save_seconds) const noexcept;
  /// "AWS announces terminate in 118 s".
  std::string text() const;
};

/// A metadata service to ask instead of the cloud's own.
struct MetadataSource {
  std::string cloud;    // "aws", "google", "azure", "alibaba" or "tencent"
  std::string address;  // numeric IPv4
  uint16_t port = 80;

  friend bool operator==(const MetadataSource&, const MetadataSource&) = default;
};

/// GPUTRAIN_METADATA_URL, for tests and for metadata behind a relay: "aws=http://127.0.0.1:8080", several with commas
/// between; unset: none. Throws Error(usage) for anything else.
std::vector<MetadataSource> read_metadata_sources(const Lookup& lookup);
std::vector<MetadataSource> read_metadata_sources();  // of this process

/// Finds out in the background which cloud this machine belongs to and keeps asking it. One per machine is enough: on
/// ranks with local rank 0. Whatever a service does or does not answer, training never hears more of it than
/// take_remarks().
class NoticeWatcher {
 public:
  struct Options {
    double interval_seconds = 5;
    double answer_seconds = 2;            // the longest one request may take
    bool has_gpu = false;                 // Google announces maintenance of machines with GPUs an hour before
    std::vector<MetadataSource> sources;  // empty: every cloud at its own address; else only these
  };

  /// Starts the thread and returns at once.
  explicit NoticeWatcher(Options options);
  /// Returns at once, also while a service is silent.
  ~NoticeWatcher();
  NoticeWatcher(const NoticeWatcher&) = delete;
  NoticeWatcher& operator=(const NoticeWatcher&) = delete;

  /// What the newest good answer announced; empty when nothing is, or when it was taken back. Cheap enough for every
  /// step.
  std::optional<Notice> notice() const;
  /// What a person should know (answers that make no sense, a service fallen silent), each once: for the log.
  std::vector<std::string> take_remarks();
  /// "AWS metadata polled every 5 s", "no cloud metadata service", or that it is not known yet.
  std::string description() const;
  /// Whether it is known within that time which cloud this is, if any.
  bool wait_until_known(double seconds) const;

  struct Counts {
    int64_t polls = 0;   // rounds of questions after the cloud was found
    int64_t failed = 0;  // questions without an answer, or with a status that is none
    int64_t junk = 0;    // answers that make no sense
  };
  Counts counts() const;

 private:
  class Watch;
  std::unique_ptr<Watch> watch_;  // null: could not be started
  std::string failure_;
};

}  // namespace gputrain::cloud
