// What a run of N ranks will do and need, found on one machine with the code that runs use.
#pragma once

#include <cstdint>
#include <optional>

#include "gputrain/comm/imagined.hpp"
#include "gputrain/data/epoch_shares.hpp"
#include "gputrain/setup/assembly.hpp"
#include "gputrain/setup/fixed_memory.hpp"
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

/// What tensors of a step take on this machine's CPU, at their peak and besides what is fixed.
struct ActivationForecast {
  int64_t measured_samples = 0;  // in a micro-batch, the largest that was tried
  int64_t measured_bytes = 0;
  int64_t bytes_per_sample = 0;  // between that and one of half as many; a straight line leads further,
                                 // too high for logits that are computed in parts
  double loss = 0;               // of the first sample

  int64_t bytes(int64_t samples) const noexcept {
    return measured_bytes + bytes_per_sample * (samples - measured_samples);
  }
};

/// After a step with one sample: takes one with as many as are done in seconds, at most `most_samples`, and one with
/// half.
ActivationForecast measure_activations(const Job& job, Assembly& assembly, const TrialStep& one, int64_t most_samples);

struct MemoryForecast {
  FixedMemory fixed;  // of the rank that has most
  ActivationForecast activations;
  int64_t micro_batch = 0;
  int64_t data = 0;   // batches read ahead, in host memory
  int64_t limit = 0;  // of the device; 0: not said

  int64_t total(int64_t samples) const noexcept { return fixed.total() + activations.bytes(samples); }
  int64_t total() const noexcept { return total(micro_batch); }
  bool fits() const noexcept { return limit == 0 || total() <= limit; }
  /// The largest one below `micro_batch` that fits; 0: none.
  int64_t smaller_micro_batch() const noexcept;
};

struct Forecast {
  data::EpochShares epoch;
  Times evaluations, saves;
  bool saves_more = false;  // whenever an evaluation between saves is the best so far
  double first_lr = 0, last_lr = 0;
  ShardForecast shards;
  WireForecast wires;
  CheckpointForecast checkpoint;
  MemoryForecast memory;
};

/// `assembly` is rank 0 of the imagined ranks, and takes two steps; `traffic` counts what it sends.
Forecast make_forecast(const Job& job, Assembly& assembly, const comm::Traffic& traffic, int64_t device_bytes);

}  // namespace gputrain::app
