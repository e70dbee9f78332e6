// How far training has come: the numbers that a checkpoint carries and every hook reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/data/usage.hpp"
#include "gputrain/monitor/record.hpp"
#include "gputrain/monitor/summary.hpp"

namespace gputrain::train {

struct Progress {
  int64_t step = 0;                 // optimizer steps done
  data::Usage usage;                // samples over all ranks, without padding
  int64_t unreadable_in_epoch = 0;  // of the epoch at hand
  int64_t tokens = 0;               // targets of text that counted
  double train_seconds = 0;         // in steps, over all attempts
  int64_t attempts = 1;
  int64_t nonfinite_steps = 0;   // updates left out, but for those that loss scaling leaves out
  int64_t skipped_in_a_row = 0;  // of them, the newest ones
  int64_t rollbacks = 0;
  std::optional<double> gained;               // EvalHook::Parts::best_metric when it last became better
  std::string gained_metric;                  // its name then
  int64_t evaluations_without_gain = 0;       // since then
  int64_t evaluated_step = -1;                // the last step after which data.val was evaluated
  bool evaluates_anew = false;                // as data.val is another one since
  double seconds_since_evaluation = 0;        // by the clock, of attempts that ran
  monitor::Metrics metrics;                   // last value of each
  std::map<std::string, monitor::Best> best;  // best value of each validation metric

  /// Of data.val, which has become another one. What the curve says of them stays.
  void forget_evaluations();
  /// Whether data.val, as it is now, was evaluated after the present step.
  bool is_evaluated() const noexcept { return evaluated_step == step && !evaluates_anew; }

  nlohmann::json to_json() const;
  /// Throws Error(checkpoint) when a field is missing or of another type.
  static Progress from_json(const nlohmann::json& json);
};

/// Keeps the better of the recorded best and `value`; returns whether `value` is the new best.
bool record_best(Progress& progress, const std::string& metric, double value);

/// Seconds since construction or the last lap.
class Stopwatch {
 public:
  double lap() noexcept;
  double seconds() const noexcept;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace gputrain::train
