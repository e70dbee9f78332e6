// Combination of the settings that `gputrain plan` varies, and the job that has them.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/job/job.hpp"
#include "gputrain/train/plan.hpp"

namespace gputrain::app {

/// Settings of a candidate. A further setting of `parallel` needs a member here, a line each in job_of() and yaml_of(),
/// and one in the candidates of plan_search.cpp.
struct PlanCandidate {
  std::string shard = "none";          // parallel.shard
  int64_t replicate = 1;               // parallel.replicate
  int64_t context = 1;                 // parallel.context
  int64_t tensor = 1;                  // parallel.tensor
  int64_t pipeline = 1;                // parallel.pipeline
  int64_t virtual_stages = 1;          // parallel.virtual_stages
  std::string checkpointing = "none";  // train.activation_checkpointing
  int64_t micro_batch = 1;             // train.micro_batch_size
  int64_t accumulation = 1;            // train.gradient_accumulation_steps

  /// Returns the number of ranks that share a sample.
  int64_t ranks_of_a_sample() const noexcept { return context * tensor * pipeline; }
};

/// Returns the job's own settings, and the batch that was planned for them.
PlanCandidate candidate_of(const JobSpec& spec, const train::BatchPlan& batch);

/// Returns the job with a candidate's settings, except for the sizes of its batch.
Job job_of(const Job& job, const PlanCandidate& candidate);

/// Returns the job that begins with made-up values instead of pretrained ones, for Weights::made_up: a step needs as much
/// memory, and the weights need not be there.
Job without_pretrained(const Job& job);

/// Describes how ranks share the model and its texts: "tensor 8, pipeline 4 x 2, context 2"; empty: they do not.
std::string mesh_text(const PlanCandidate& candidate);

/// Returns the lines of a job for a candidate.
std::string yaml_of(const PlanCandidate& candidate);

}  // namespace gputrain::app
