// Trials of kernels: first runs that may crash inside a library and end the process.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/core/descriptor.hpp"

namespace gputrain::ops {

/// Counts trials, and leaves a mark on disk while one runs. Each process has one file in a folder, with the text of the
/// innermost trial, and holds a kernel lock (flock) on it. The kernel releases the lock when the process ends in any
/// way, so a file of this host without a lock is from a process that ended during that trial. Thread-safe.
class Trials {
 public:
  /// `marks`: the folder of the marks; empty: none are made. It is created with the first one. Without write access or
  /// locks, trials run without a mark.
  explicit Trials(std::filesystem::path marks);
  ~Trials();
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

  /// Passes the texts of trials during which processes ended, each once, and then removes their marks. `take` runs
  /// under a lock that all processes share, so that one of them takes each mark.
  void take_interrupted(const std::function<void(const std::vector<std::string>&)>& take);

  /// Begins a trial, which runs until the result is destroyed. `mark`: its text for take_interrupted(), one line.
  [[nodiscard]] std::shared_ptr<void> begin(const std::string& name, const std::string& mark);

  /// Sets a function that is called at the start of each trial with the number of trials so far and the name, from any
  /// thread, one call at a time.
  void set_listener(std::function<void(int64_t, std::string_view)> listener);

  struct Done {
    int64_t count = 0;
    double seconds = 0;  // trials within trials count once
  };
  Done done() const;

 private:
  class Running;
  void end(const std::string& mark);
  void open_mark();
  void write_mark();

  std::filesystem::path folder_;
  mutable std::mutex mutex_;                     // guards what follows
  std::vector<std::string> running_;             // marks; the last is the innermost
  std::unique_ptr<Descriptor> mark_;             // null before the first trial, or if it cannot be made
  std::filesystem::path mark_path_;              // empty before the first trial
  std::chrono::steady_clock::time_point began_;  // begin of the outermost trial
  Done done_;
  std::function<void(int64_t, std::string_view)> listener_;
};

}  // namespace gputrain::ops
