// Trials of a sweep, and the rule by which some of them go on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/job/job.hpp"
#include "gputrain/job/sweep_spec.hpp"

namespace gputrain::app {

/// Settings of a trial: keys of the job and their values, in the order of the spec.
using TrialSettings = std::vector<std::pair<std::string, std::string>>;

/// Returns the settings of every trial: a pure function of the spec and the seed. Trial n of random and asha does not
/// depend on the number of trials.
std::vector<TrialSettings> trial_settings(const SweepSpec& spec, uint64_t seed);

/// Throws config::SpecError with each value of a list, and each end of a range, that neither the job as it stands nor
/// any trial takes.
void check_values(const JobRequest& request, const Job& job);

/// Asynchronous successive halving (Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020), in
/// the form that ends trials instead of pausing them. A trial reaches rung r after first_rung * reduction^r
/// evaluations. It goes on if its best value so far is among the best 1 / reduction of those that have reached the
/// rung.
class Rungs {
 public:
  Rungs(const SweepSpec& spec, bool smaller_is_better);

  /// Judges the values of a trial's evaluations so far, in their order. Returns the number of evaluations after which
  /// it must end; empty: it goes on. A rung that the trial has reached before is not judged again.
  std::optional<int64_t> ends_after(int64_t trial, const std::vector<double>& values);

  /// Returns the best of the values; empty: none is finite.
  std::optional<double> best(const std::vector<double>& values) const;
  bool is_better(double one, double other) const { return smaller_is_better_ ? one < other : one > other; }

  /// Trials that have reached each rung, with their values there, for a file.
  using Reached = std::vector<std::map<int64_t, double>>;
  const Reached& reached() const noexcept { return reached_; }
  void restore(Reached reached) { reached_ = std::move(reached); }

 private:
  bool goes_on(const std::map<int64_t, double>& rung, double value) const;

  int64_t first_, reduction_;
  bool smaller_is_better_;
  Reached reached_;
};

}  // namespace gputrain::app
