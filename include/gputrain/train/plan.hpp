// The arithmetic of a run: batch sizes, number of steps, and when things happen, worked out before anything is built.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/monitor/log_spec.hpp"
#include "gputrain/train/spec.hpp"

namespace gputrain::train {

/// What the plan is made from besides the spec.
struct PlanFacts {
  int64_t dataset_size = 0;       // samples in an epoch
  int64_t tokens_per_sample = 0;  // 0: not text
  int world_size = 1;
  bool drop_last = false;         // an epoch's last, smaller step is left out
  int64_t kept_global_batch = 0;  // of the run that goes on: it stays where the spec names none; 0: a new run
};

/// How one step's samples are divided.
struct BatchPlan {
  int64_t global_batch = 0;                 // samples per optimizer step over all ranks
  int64_t micro_batch = 0;                  // samples per forward pass on one rank, at most
  int64_t accumulation = 0;                 // forward passes per optimizer step on one rank, at most
  std::vector<int64_t> micro_batches = {};  // of each rank, where they differ; micro_batch is the largest then
  int64_t instead_of = 0;                   // the global batch that the spec alone would give, where one is kept

  /// Samples per forward pass on this rank, at most.
  int64_t micro_batch_of(int rank) const;
  /// The same over all ranks.
  int64_t micro_batch_over_ranks(int world_size) const;
};

/// When something recurs: every so many steps, or every so many seconds, or as the run itself finds best; none of them:
/// only at the end.
struct Cadence {
  int64_t steps = 0;
  double seconds = 0;
  bool is_auto = false;
  int64_t also_steps = 0;  // besides, every so many steps

  bool at_step(int64_t step) const noexcept {
    return (steps > 0 && step % steps == 0) || (also_steps > 0 && step % also_steps == 0);
  }
  bool is_never() const noexcept { return steps == 0 && seconds == 0 && !is_auto && also_steps == 0; }
};

struct Plan {
  BatchPlan batch;
  int64_t tokens_per_step = 0;  // 0: not text
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;  // INT64_MAX: limited by time alone
  double max_seconds = 0;   // of training, summed over attempts; 0: unlimited
  Cadence eval, save, log;

  bool is_time_limited() const noexcept { return total_steps == INT64_MAX; }
  double epochs_in(int64_t steps) const noexcept;
  /// Of training, until the limit that comes first at this pace.
  double seconds_left(int64_t step, double seconds_so_far, double seconds_per_step) const noexcept;
  /// A length in steps, at least 0; percent is of total_steps. Throws Error(usage) where the unit makes no sense.
  int64_t steps_of(const config::Length& length, const std::string& key) const;
  /// The same for what recurs; a time is kept as one, null is never.
  Cadence cadence_of(const std::optional<config::Length>& length, const std::string& key) const;
};

/// The ranks' micro-batches in order: "32 + 16", "8 x 32 + 8 x 16".
std::string sum_text(const std::vector<int64_t>& sizes);

/// Any two of global batch, micro-batch and accumulation give the third; where a global batch is kept, the micro-batch
/// gives the accumulation. Throws Error(usage) when they contradict, when none is given, when a batch is smaller than
/// the number of ranks, when it has fewer samples than there are forward passes, or when the ranks'
/// micro-batches are not as many.
BatchPlan plan_batch(const TrainSpec& spec, const PlanFacts& facts);

/// Micro-batches to choose from for a rank's share of a step, smallest first: 1, and from each doubling on the way to
/// the whole share the largest one that divides it; where none does, its largest.
std::vector<int64_t> micro_batches_to_try(int64_t share);

Plan make_plan(const TrainSpec& train, const EvalSpec& eval, const CheckpointSpec& checkpoint,
               const monitor::LogSpec& log, const PlanFacts& facts);

}  // namespace gputrain::train
