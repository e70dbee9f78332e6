// What a run of N ranks will do and need, found on one machine with the code that runs use.
#pragma once

#include <cstdint>
#include <optional>

#include "gputrain/comm/imagined.hpp"
#include "gputrain/data/epoch_shares.hpp"
#include "gputrain/estimate/memory.hpp"
#include "gputrain/setup/assembly.hpp"
#include "gputrain/setup/trial_step.hpp"

namespace gputrain::app {

/// How often something happens, the end of training included; empty: by the clock, or as the run itself finds best.
using Times = std::optional<int64_t>;

/// What rank by rank may differ.
struct ShardForecast {
  int64_t most_owned = 0, fewest_owned = 0;   // bytes of parameters that a rank updates
  int64_t owning_nothing = 0;                 // ranks
  int64_t most_state = 0;                     // bytes of optimizer state
  int64_t files_bytes = 0, largest_file = 0;  // of the optimizer's state in a checkpoint
};

/// What a step sends.
struct WireForecast {
  int64_t buckets = 0, largest_bucket = 0;  // bytes
  comm::Traffic traffic;                    // of one rank in one step
  int64_t bytes_per_rank = 0;               // sent for gradients and weights, around a ring
};

struct CheckpointForecast {
  int64_t files = 0;  // of tensors
  int64_t bytes = 0, largest_file = 0;
  int64_t most_at_once = 0;           // checkpoints, with the one being written
  std::optional<int64_t> free_bytes;  // on the disk of output_dir; empty: not known
  int64_t copy_bytes = 0;             // host memory of rank 0 that holds one while it is written; 0: none is needed

  bool fits() const noexcept { return !free_bytes || most_at_once * bytes <= *free_bytes; }
};

/// Measures a step with as many samples as this machine's CPU does in seconds, at most `most_samples`, and one with
/// half; `one` is a step with one sample.
Activations measure_activations(const Job& job, Assembly& assembly, const TrialStep& one, int64_t most_samples);

struct Forecast {
  data::EpochShares epoch;
  Times evaluations, saves;
  bool saves_more = false;  // whenever an evaluation between saves is the best so far
  double first_lr = 0, last_lr = 0;
  ShardForecast shards;
  WireForecast wires;
  CheckpointForecast checkpoint;
  Memory memory;          // of the rank that has most
  int64_t host_data = 0;  // bytes of batches read ahead, per rank
  double first_loss = 0;  // of the first sample
};

/// `assembly` is rank 0 of the imagined ranks, and takes two steps; `traffic` counts what it sends.
Forecast make_forecast(const Job& job, Assembly& assembly, const comm::Traffic& traffic, int64_t device_bytes);

}  // namespace gputrain::app
