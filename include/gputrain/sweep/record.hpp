// Record of a sweep's trials, and its file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/sweep/trials.hpp"

namespace gputrain::app {

struct Trial {
  TrialSettings settings;
  std::string state = "waiting";  // done; failed; ended: by asha, it was not among the best
  std::optional<double> value;    // best of its evaluations
  int64_t evaluations = 0;
  std::string why = {};  // reason of a failed trial
  int exit_code = 0;     // exit code of a failed trial

  bool is_over() const { return state != "waiting"; }
  bool has_worked() const { return state == "done" || state == "ended"; }
};

/// Returns "optimizer.lr 0.01  optimizer.momentum 0.9".
std::string text_of(const TrialSettings& settings);

/// Record of a sweep. Every change is in the file before the call returns.
class SweepRecord {
 public:
  /// Takes the hash of the job's settings that change results as `job`.
  SweepRecord(const SweepSpec& spec, uint64_t seed, std::string job, std::filesystem::path file);

  /// Reads the file, if there is one. Trials that failed, but did not diverge, are to be tried again. Throws
  /// Error(usage) for the file of another job, metric or list of trials; Error(data) for one that cannot be read.
  void restore();
  /// Writes all trials and rungs to the file. Throws Error(environment).
  void save() const;

  const std::vector<Trial>& trials() const noexcept { return trials_; }

  /// Judges the values of a trial's evaluations so far. Ends the trial if it is not among the best.
  void judge(size_t trial, std::vector<double> values);
  void finish(size_t trial, const std::vector<double>& values);
  void fail(size_t trial, int exit_code, std::string why);

  nlohmann::ordered_json to_json() const;
  /// Returns the numbers of the trials, the best first; those without a value last.
  std::vector<size_t> best_first() const;
  /// Returns a row for each trial, the best first.
  std::string table() const;

 private:
  void restore(Trial& trial, const nlohmann::ordered_json& known) const;
  void conclude(size_t trial, const std::string& state, const std::vector<double>& values);

  std::string metric_, job_;
  std::filesystem::path file_;
  Rungs rungs_;
  std::vector<Trial> trials_;
};

}  // namespace gputrain::app
