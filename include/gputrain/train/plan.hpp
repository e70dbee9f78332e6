// The arithmetic of a run: batch sizes, number of steps and cadences, computed before anything is built.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/data/order.hpp"
#include "gputrain/monitor/log_spec.hpp"
#include "gputrain/train/spec.hpp"

namespace gputrain::train {

/// The place where steps of this global batch began. Training goes by samples: a run that goes on with another global
/// batch still has the epochs, tokens and part of the learning-rate curve that it has not trained yet.
struct PlanStart {
  int64_t step = 0;
  data::Position position = {};
  double epochs = 0;               // Plan::epochs_in(step) of the plan before
  int64_t first_global_batch = 0;  // with which training began; 0: this one
  int64_t log_steps = 0;           // what log.interval: auto chose where training began; 0: nothing yet
};

/// Input of the plan besides the spec.
struct PlanFacts {
  int64_t dataset_size = 0;       // samples in an epoch
  int64_t tokens_per_sample = 0;  // 0: not text
  int world_size = 1;
  bool drop_last = false;         // the last partial step of an epoch is dropped
  int64_t kept_global_batch = 0;  // that of the resumed run, used if the spec names none; 0: a new run
  PlanStart start = {};
};

/// The division of the samples of a step.
struct BatchPlan {
  int64_t global_batch = 0;  // samples per optimizer step over all ranks
  int64_t micro_batch = 0;   // maximum samples per forward pass on one rank
  int64_t accumulation = 0;  // maximum forward passes per optimizer step on one rank
  int64_t aliases = 0;       // the global batch of the spec alone, if another one is kept; else 0
};

/// Uniform steps: the count of a run that has had the present global batch from its start. The rest of an epoch begun
/// with another global batch leads from the place reached to the epoch's end, so that no place is passed twice.
struct UniformSteps {
  int64_t origin = 0;            // from `whole` on, a step less this; below 0 if the global batch was larger before
  int64_t first = 0, whole = 0;  // the epoch that was begun before goes on in steps (first, whole]
  double at_first = 0;

  double at(int64_t step) const noexcept {
    if (step >= whole) return static_cast<double>(step - origin);
    const double left = static_cast<double>(whole - origin) - at_first;
    return at_first + left * static_cast<double>(step - first) / static_cast<double>(whole - first);
  }
  bool reaches_multiple(int64_t step, int64_t every) const noexcept;
};

/// The times at which something recurs: every `steps` steps, every `seconds` seconds, or at an interval that the run
/// chooses (is_auto). None of them: only at the end.
struct Cadence {
  int64_t steps = 0;
  double seconds = 0;
  bool is_auto = false;
  int64_t also_steps = 0;                   // in addition, every so many steps
  UniformSteps uniform, also_uniform = {};  // the counts that `steps` and `also_steps` refer to

  bool at_step(int64_t step) const noexcept {
    return (steps > 0 && uniform.reaches_multiple(step, steps)) || also_at_step(step);
  }
  bool also_at_step(int64_t step) const noexcept {
    return also_steps > 0 && also_uniform.reaches_multiple(step, also_steps);
  }
  /// Returns at how many steps after `after`, up to `until`, it recurs; a clock's times are not counted.
  int64_t times_in(int64_t after, int64_t until) const noexcept;
  bool is_never() const noexcept { return steps == 0 && seconds == 0 && !is_auto && also_steps == 0; }
};

struct Plan {
  BatchPlan batch;
  PlanStart start;
  /// The count by which epochs, tokens and shares of training go, so that they end where they should.
  UniformSteps uniform;
  int64_t tokens_per_step = 0;  // tokens of a full step; 0: not text
  int64_t steps_per_epoch = 0;
  int64_t samples_per_epoch = 0;  // samples that are used
  int64_t total_steps = 0;        // INT64_MAX: limited only by time
  std::string limit = {};         // the key that limits total_steps; empty: none
  bool ends_by_steps = false;     // that key is train.max_steps
  double uniform_end = 0;         // if not: the limit in uniform steps, perhaps not a whole number
  double max_seconds = 0;         // limit of training, summed over attempts; 0: unlimited
  Cadence eval, save, log, sample;

  bool is_time_limited() const noexcept { return total_steps == INT64_MAX; }
  double epochs_in(int64_t steps) const noexcept;
  /// Returns the count by which shares of training go: percentages, and the learning rate.
  UniformSteps shares() const noexcept { return ends_by_steps ? UniformSteps{} : uniform; }
  /// Returns the count by which lengths of this unit go.
  UniformSteps uniform_of(config::Length::Unit unit) const noexcept;
  /// Returns the remaining training time, until the first limit at this pace.
  double seconds_left(int64_t step, double seconds_so_far, double seconds_per_step) const noexcept;
  /// Converts a length to steps, at least 0; percent is of curve_steps(). Throws Error(usage) for an impossible unit.
  int64_t steps_of(const config::Length& length, const std::string& key) const;
  /// Does the same for a part of the learning-rate curve, which a new global batch leaves at the same share of
  /// training: its steps are those of the global batch with which training began.
  int64_t steps_of_curve(const config::Length& length, const std::string& key) const;
  /// Returns the steps of the whole learning-rate curve; INT64_MAX: limited only by time.
  int64_t curve_steps() const noexcept { return is_time_limited() ? total_steps : total_steps - shares().origin; }
  /// Returns the place of the curve for the update after `step`: a whole number unless the global batch has changed.
  double curve_step(int64_t step) const noexcept;
  /// Returns the same as a cadence; keeps a time as seconds. Null: never.
  Cadence cadence_of(const std::optional<config::Length>& length, const std::string& key) const;
};

/// Plans the batch. Any two of global batch, micro-batch and accumulation give the third; with a kept global batch, the
/// micro-batch gives the accumulation. Throws Error(usage) if they contradict each other, if none is given, if a global
/// batch has fewer samples than ranks or than forward passes, or if the number of micro-batches is not the number of
/// ranks.
BatchPlan plan_batch(const TrainSpec& spec, const PlanFacts& facts);

/// Micro-batches to try for a rank's share of a step, smallest first: 1, then for each halving of the share the largest
/// size in that range that divides it; if none does, the largest size of the range.
std::vector<int64_t> micro_batches_to_try(int64_t share);

Plan make_plan(const TrainSpec& train, const EvalSpec& eval, const CheckpointSpec& checkpoint,
               const monitor::LogSpec& log, const PlanFacts& facts);

}  // namespace gputrain::train
