// The progress of training: checkpoints store it, and every hook reads it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/data/sample_usage.hpp"
#include "gputrain/monitor/record.hpp"
#include "gputrain/monitor/summary.hpp"
#include "gputrain/optim/feedback.hpp"

namespace gputrain::train {

/// A learning rate that an order has set.
struct OrderedRate {
  double lr = 0;      // the peak of the schedule, whatever the global batch is
  double job_lr = 0;  // optimizer.lr of the job that the order was given to; a job with another one ends the order

  bool operator==(const OrderedRate&) const = default;
};
nlohmann::json to_json(const std::optional<OrderedRate>& rate);
/// Throws nlohmann::json::exception.
std::optional<OrderedRate> ordered_rate_from_json(const nlohmann::json& json);

struct Progress {
  int64_t step = 0;                 // optimizer steps done
  data::SampleUsage usage;          // counted samples over all ranks
  int64_t unreadable_in_epoch = 0;  // unreadable samples of the current epoch
  int64_t tokens = 0;               // targets of text that counted
  double train_seconds = 0;         // spent in steps, over all attempts
  double eval_seconds = 0;          // ... in evaluations
  double save_seconds = 0;          // ... standing still for saves
  int64_t attempts = 1;
  int64_t nonfinite_steps = 0;   // updates skipped, except those that loss scaling skips
  int64_t skipped_in_a_row = 0;  // length of the current series of them
  int64_t rollbacks = 0;
  std::optional<double> gained;               // value of EvalHook::Parts::best_metric at its last improvement
  std::string gained_metric;                  // name of that metric
  int64_t evaluations_without_gain = 0;       // evaluations since that improvement
  int64_t evaluated_step = -1;                // the last step after which data.val was evaluated
  bool evaluates_anew = false;                // data.val has changed since that evaluation
  double seconds_since_evaluation = 0;        // wall time while attempts ran
  std::optional<OrderedRate> ordered_rate;    // empty: the job's rate counts
  int64_t average_points = 0;                 // number of weights in the mean of train.swa
  optim::Feedback lr_feedback;                // results of evaluations for a schedule that follows them
  monitor::Metrics metrics;                   // last value of each
  std::map<std::string, monitor::Best> best;  // best value of each validation metric

  /// Returns the factor of the schedule's rate, which rises to `peak_lr`.
  double lr_factor(double peak_lr) const noexcept {
    return (ordered_rate ? ordered_rate->lr / peak_lr : 1) * lr_feedback.factor;
  }
  /// Forgets the results of data.val after it has changed. Logged metrics stay.
  void forget_evaluations();
  /// Returns whether the current data.val was evaluated after the current step.
  bool is_evaluated() const noexcept { return evaluated_step == step && !evaluates_anew; }

  nlohmann::json to_json() const;
  /// Throws Error(checkpoint) if a field is missing or has the wrong type.
  static Progress from_json(const nlohmann::json& json);
};

/// Keeps the better of the recorded best and `value`. Returns whether `value` is the new best.
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
