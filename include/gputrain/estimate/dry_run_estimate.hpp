// Forecast of a run of N ranks, made on one machine with the code of real runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/comm/simulated_ranks.hpp"
#include "gputrain/data/epoch_shares.hpp"
#include "gputrain/estimate/memory.hpp"
#include "gputrain/estimate/predicted_activations.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/setup/trial_step.hpp"

namespace gputrain::app {

/// Number of times something happens in a run, also at its end; empty: the clock or the run itself decides.
using Times = std::optional<int64_t>;

/// Values that may differ between ranks.
struct ShardEstimate {
  int64_t most_owned = 0, fewest_owned = 0;   // bytes of parameters that a rank updates
  int64_t owning_nothing = 0;                 // ranks without parameters
  int64_t most_state = 0, most_on_host = 0;   // bytes of optimizer state, on the device and in the host's memory
  int64_t files_bytes = 0, largest_file = 0;  // files of optimizer state in a checkpoint
};

/// Communication of one step.
struct CommunicationEstimate {
  int64_t buckets = 0, largest_bucket = 0;         // bytes
  std::optional<comm::CollectiveTraffic> traffic;  // traffic of one rank in one step; empty: no step was taken
  int64_t bytes_per_rank = 0;                      // sent by each rank in a ring
};

struct CheckpointEstimate {
  int64_t files = 0;  // files with tensors
  int64_t bytes = 0, largest_file = 0;
  int64_t frozen_bytes = 0;           // stored beside the checkpoints, once for all of them
  int64_t most_at_once = 0;           // checkpoints, including the one being written
  std::optional<int64_t> free_bytes;  // free on the disk of output_dir; empty: unknown
  int64_t copy_bytes = 0;             // host memory of rank 0 for the copy that a background save writes; 0: no copy

  bool fits() const noexcept { return !free_bytes || most_at_once * bytes + frozen_bytes <= *free_bytes; }
};

/// Extrapolates from a step with one sample, `one`, and two more steps: one with as many samples as take some seconds,
/// at most `most_samples`, and one with half as many.
PlacedActivations measure_activations(const Job& job, TrainingSetup& setup, const TrialStep& one, int64_t most_samples);

/// Estimate for a stage of a pipeline.
struct StageEstimate {
  ShardEstimate shards;
  Memory memory;
};

struct DryRunEstimate {
  data::EpochShares epoch;
  Times evaluations, saves;
  bool saves_more = false;  // also saves after each evaluation with a new best score
  double first_lr = 0, last_lr = 0;
  ShardEstimate shards;
  CommunicationEstimate communication;
  CheckpointEstimate checkpoint;
  Memory memory;  // memory of the rank that has most, in a pipeline on the first stage
  std::vector<Memory> memory_of_later_stages = {};
  int64_t host_data = 0;             // bytes of batches read ahead, per rank
  std::optional<double> first_loss;  // loss of the first sample; empty: no step was taken
};

/// Explains why this machine cannot take steps with a rank's part of the model; empty: it can. `setup`: sizes suffice.
std::string obstacle_to_steps(const TrainingSetup& setup);

/// Estimates one stage. `setup` is the stage's first rank in a group without peers. Takes some small steps with it,
/// unless there is `predicted`: then it may only have sizes.
StageEstimate make_stage_estimate(const Job& job, TrainingSetup& setup, int64_t device_bytes,
                                  PredictedActivations* predicted = nullptr);

/// Estimates the run with rank 0 of a group without peers. `traffic` counts what the assembly sends. `later_stages`:
/// the other stages of a pipeline, in order.
DryRunEstimate make_dry_run_estimate(const Job& job, TrainingSetup& setup, const comm::CollectiveTraffic& traffic,
                                     int64_t device_bytes, const std::vector<StageEstimate>& later_stages = {},
                                     PredictedActivations* predicted = nullptr);

}  // namespace gputrain::app
