#include "gputrain/resume/kept_batch.hpp"

#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/resume/resume_point.hpp"

namespace gputrain::app {
namespace {

/// Returns whether the job now says another number of forward passes than it did then: another global batch is meant.
bool says_other_accumulation(const Job& job, const nlohmann::json& settings_then) {
  if (!job.spec().train.gradient_accumulation_steps.value) return false;
  for (const auto& [key, value, change] : job.loaded.settings()) {
    if (key == "train.gradient_accumulation_steps") return settings_then.value(key, value) != value;
  }
  return false;
}

/// Returns the global batch of the checkpoint; 0: none. Restoring will report a checkpoint that cannot be read.
int64_t global_batch_before(const Job& job) {
  try {
    if (job.spec().checkpoint.resume == "never") return 0;
    const auto checkpoint = look_for_checkpoint(job, [](const checkpoint::Checkpoint&) {});
    if (!checkpoint || says_other_accumulation(job, checkpoint->state().at("settings"))) return 0;
    return checkpoint->state().value("global_batch", int64_t{0});
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace

int64_t kept_global_batch(const Job& job, RankContext& context) {
  if (job.spec().train.names_global_batch()) return 0;
  const int64_t kept = context.rank() == 0 ? global_batch_before(job) : 0;
  return context.groups.from_rank_zero(kept, "global batch of the checkpoint");
}

void tell_of_kept_batch(const train::BatchPlan& batch) {
  if (batch.aliases == 0) return;
  log::warning("the global batch stays at " + counted(batch.global_batch, "sample") +
               ", as the run had it; micro-batch, accumulation and ranks would make it " + grouped(batch.aliases) +
               " now: train.global_batch_size can name another one");
}

}  // namespace gputrain::app
