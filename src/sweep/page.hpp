// sweep.html: what a sweep has found so far, on one page, written anew while it goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gputrain/job/job.hpp"
#include "gputrain/monitor/curves.hpp"
#include "gputrain/sweep/record.hpp"

namespace gputrain::app {

/// State of a sweep for its page.
struct SweepState {
  const SweepRecord& record;
  std::vector<size_t> running = {};  // trials
  std::string state = "running";     // or done, stopped, failed
};

class SweepPage {
 public:
  SweepPage(const Job& job, std::filesystem::path folder);

  /// Writes the page, unless that was a few seconds ago. A page that takes long is written less often.
  void update(const SweepState& state);
  /// Writes the page. A disk error is a warning, once.
  void write(const SweepState& state);

  std::filesystem::path file() const { return folder_ / "sweep.html"; }

 private:
  /// What metrics.jsonl of a trial had when it was read last.
  struct Known {
    uintmax_t size = 0;
    monitor::Curves curves;
  };
  const monitor::Curves& curves_of(size_t trial);

  std::string name_;
  std::filesystem::path folder_;
  SweepSpec spec_;
  std::map<size_t, Known> known_;  // by trial
  std::chrono::steady_clock::time_point next_;
  bool has_failed_ = false;
};

/// Returns the folder of a trial's run in that of its sweep.
std::filesystem::path run_of_trial(const std::filesystem::path& sweep, size_t trial);

}  // namespace gputrain::app
