#include "gputrain/resume/kept_batch.hpp"

#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/store.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/job/run_lock.hpp"
#include "newest_checkpoint.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

/// A killed process may have left the newest one under another name.
std::optional<checkpoint::Listed> newest_of_run(const RunFolder& run, const checkpoint::Lineage& lineage) {
  if (!exists(run.path)) return std::nullopt;
  const RunLock nobody_else(run.path);
  checkpoint::CheckpointStore(run.checkpoints()).put_back_replaced();
  return checkpoint::newest_listed(run.checkpoints(), lineage);
}

std::optional<checkpoint::Listed> newest_of_mirror(const fs::path& mirror, const checkpoint::Lineage& lineage) {
  try {
    return checkpoint::newest_listed(mirror, lineage);
  } catch (const Error&) {
    return std::nullopt;  // it may be away
  }
}

/// Empty: none.
fs::path to_go_on_from(const Job& job) {
  const auto& spec = job.spec().checkpoint;
  if (spec.resume == "never") return {};
  if (spec.resume != "auto" && spec.resume != "must") return spec.resume;
  const RunFolder run{job.output_dir};
  const auto lineage = lineage_of(run, spec.mirror);
  auto newest = newest_of_run(run, lineage);
  if (spec.mirror) {
    auto copy = newest_of_mirror(*spec.mirror, lineage);
    if (copy && (!newest || copy->step > newest->step)) newest = std::move(copy);
  }
  return newest ? newest->folder : fs::path();
}

/// Whether the job now says another number of forward passes than it did then: another global batch is meant.
bool says_other_accumulation(const Job& job, const nlohmann::json& settings_then) {
  if (!job.spec().train.gradient_accumulation_steps.value) return false;
  for (const auto& [key, value, change] : job.loaded.settings()) {
    if (key == "train.gradient_accumulation_steps") return settings_then.value(key, value) != value;
  }
  return false;
}

/// What cannot be read is told where the checkpoint is taken up.
int64_t global_batch_before(const Job& job) {
  try {
    const fs::path folder = to_go_on_from(job);
    if (folder.empty()) return 0;
    const auto checkpoint = checkpoint::Checkpoint::look_into(folder);
    if (says_other_accumulation(job, checkpoint.state().at("settings"))) return 0;
    return checkpoint.state().value("global_batch", int64_t{0});
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace

int64_t kept_global_batch(const Job& job, Place& place) {
  if (job.spec().train.names_global_batch()) return 0;
  const int64_t kept = place.rank() == 0 ? global_batch_before(job) : 0;
  return place.groups.from_rank_zero(kept, "global batch of the checkpoint");
}

void tell_of_kept_batch(const train::BatchPlan& batch) {
  if (batch.instead_of == 0) return;
  log::warning("the global batch stays at " + counted(batch.global_batch, "sample") +
               ", as the run had it; micro-batch, accumulation and ranks would make it " + grouped(batch.instead_of) +
               " now: train.global_batch_size can name another one");
}

}  // namespace gputrain::app
