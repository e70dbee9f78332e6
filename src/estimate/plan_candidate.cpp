#include "gputrain/estimate/plan_candidate.hpp"

#include <utility>

#include <fmt/format.h>

namespace gputrain::app {

PlanCandidate candidate_of(const JobSpec& spec, const train::BatchPlan& batch) {
  const auto& parallel = spec.parallel;
  return {.shard = parallel.shard,
          .replicate = parallel.replicate,
          .context = parallel.context,
          .tensor = parallel.tensor,
          .pipeline = parallel.pipeline,
          .virtual_stages = parallel.virtual_stages,
          .checkpointing = spec.train.activation_checkpointing,
          .micro_batch = batch.micro_batch,
          .accumulation = batch.accumulation};
}

Job job_of(const Job& job, const PlanCandidate& candidate) {
  JobSpec spec = job.spec();
  spec.parallel.shard = candidate.shard;
  spec.parallel.replicate = candidate.replicate;
  spec.parallel.context = candidate.context;
  spec.parallel.tensor = candidate.tensor;
  spec.parallel.pipeline = candidate.pipeline;
  spec.parallel.virtual_stages = candidate.virtual_stages;
  spec.train.activation_checkpointing = candidate.checkpointing;
  if (candidate.checkpointing != "block") spec.train.offload.activations = false;  // a mesh, whose kind is still open
  if (spec.train.searches_micro_batch()) spec.train.micro_batch_size.reset();      // the candidate has one
  Job said = job;
  said.loaded = job.loaded.with(std::move(spec));
  return said;
}

Job without_pretrained(const Job& job) {
  JobSpec spec = job.spec();
  spec.model.pretrained.reset();
  Job made_up = job;
  made_up.loaded = job.loaded.with(std::move(spec));
  return made_up;
}

std::string mesh_text(const PlanCandidate& candidate) {
  std::string text;
  const auto add = [&](const char* name, int64_t degree, const std::string& more) {
    if (degree > 1) text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", name, degree, more);
  };
  const int64_t parts = candidate.virtual_stages;
  add("tensor", candidate.tensor, "");
  add("pipeline", candidate.pipeline, parts > 1 ? fmt::format(" x {}", parts) : "");
  add("context", candidate.context, "");
  return text;
}

std::string yaml_of(const PlanCandidate& candidate) {
  std::string parallel = "shard: " + candidate.shard;
  const auto add = [&](const char* key, int64_t value) {
    if (value > 1) parallel += fmt::format(", {}: {}", key, value);
  };
  add("replicate", candidate.replicate);
  add("context", candidate.context);
  add("tensor", candidate.tensor);
  add("pipeline", candidate.pipeline);
  add("virtual_stages", candidate.virtual_stages);
  return fmt::format(
      "parallel: {{{}}}\n"
      "train:\n"
      "  micro_batch_size: {}\n"
      "  gradient_accumulation_steps: {}\n"
      "  activation_checkpointing: {}\n",
      parallel, candidate.micro_batch, candidate.accumulation, candidate.checkpointing);
}

}  // namespace gputrain::app
