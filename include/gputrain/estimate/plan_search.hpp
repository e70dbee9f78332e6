// Search for the settings with which a job of N ranks trains fastest in the memory of its devices, by prediction alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/estimate/plan_candidate.hpp"
#include "gputrain/estimate/rank_layout.hpp"
#include "gputrain/estimate/step_time.hpp"

namespace gputrain::app {

/// Memory of a rank at the peak of a step.
struct RankMemory {
  FixedMemory fixed;
  int64_t activations = 0;  // bytes, with gathered weights and gradients being sent

  int64_t bytes() const noexcept { return fixed.total() + activations; }
};

/// Candidate with its prediction.
struct PlanRow {
  PlanCandidate candidate;
  RankMemory memory;                                    // memory of a pipeline's first stage
  std::optional<RankMemory> memory_of_last_stage = {};  // set for a pipeline: the stages between have less
  int64_t wire_bytes = 0;                               // bytes that each rank sends in a step
  StepTime time;
  double samples_per_second = 0;  // sum over all ranks
  double utilization = 0;         // share of the peak rate, by the operations of the model; 0: the model counts none

  const RankMemory& most_memory() const noexcept {
    return memory_of_last_stage && memory_of_last_stage->bytes() > memory.bytes() ? *memory_of_last_stage : memory;
  }
  int64_t bytes() const noexcept { return most_memory().bytes(); }
};

struct PlanRequest {
  int world_size = 1;
  int64_t device_bytes = 0;
  ClusterRates rates;
  bool finds_ranks = true;  // whether to look for the ranks that would fit, if nothing does
};

/// Share of a device's memory for other things: its context, NCCL, gaps between tensors.
constexpr double kKeptMemory = 0.05;

struct Plans {
  int64_t global_batch = 0, tokens_per_sample = 0, parameters = 0;
  int64_t steps = 0;                 // of the whole job; INT64_MAX: limited only by time
  double max_seconds = 0;            // limit of the job's training; 0: none
  std::vector<PlanRow> fitting;      // fastest first; among those within 1 %, the smallest
  std::vector<PlanRow> all;          // in search order; the job's degrees, and others if they fit (or the smallest)
  std::string how_activations;       // how activations were found
  int64_t ranks_that_would_fit = 0;  // least power of two with which it fits, if none fits; 0: no number of ranks

  /// Returns the candidate with the least memory.
  const PlanRow& smallest() const;
  /// Returns the time of all steps of the job, or its limit.
  double seconds_of(const PlanRow& row) const noexcept;
};

/// Searches all settings of a candidate, except a degree of context, tensor, pipeline or virtual_stages that the job
/// sets, for each request; they differ in their devices alone. Opens the job's data, but not its pretrained weights,
/// and takes small steps on this machine's CPU, with small models if the job's is large. Throws Error(usage) if ranks
/// do not divide the global batch, if the model cannot be predicted, or as a run would.
std::vector<Plans> search_plans(const Job& job, const std::vector<PlanRequest>& requests);

}  // namespace gputrain::app
