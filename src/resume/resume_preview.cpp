#include "gputrain/resume/resume_preview.hpp"

#include <filesystem>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/store.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/job/job_changes.hpp"
#include "gputrain/job/run_folder.hpp"
#include "newest_checkpoint.hpp"

namespace gputrain::app {
namespace {

using checkpoint::Checkpoint;
using checkpoint::CheckpointStore;

/// Tensors are not read: that takes as long as the run itself needs for it.
CheckpointStore::Search look_for_newest(const CheckpointStore& store) {
  return store.find_newest([](const Checkpoint&) {});
}

/// A mirror may be away.
std::optional<Checkpoint> newest_seen_in_mirror(const CheckpointStore& mirror) {
  try {
    return look_for_newest(mirror).newest;
  } catch (const Error& error) {
    log::warning(std::string("the mirror cannot be read: ") + error.what());
    return std::nullopt;
  }
}

/// What a run may find good after all, as it reads what cannot be read now, is left to it where there is another one.
std::optional<Checkpoint> newest_seen(const Job& job) {
  const auto& spec = job.spec().checkpoint;
  const RunFolder run{job.output_dir};
  refuse_if_not_begun(run);
  const auto lineage = lineage_of(run, spec.mirror);
  CheckpointStore own(run.checkpoints());
  own.follow(lineage);
  auto search = look_for_newest(own);
  if (spec.mirror) {
    CheckpointStore mirror(*spec.mirror);
    mirror.follow(lineage);
    auto copy = newest_seen_in_mirror(mirror);
    if (copy && (!search.newest || copy->step() > search.newest->step())) search.newest = std::move(copy);
  }
  if (!search.newest) {
    refuse_to_start_over(own, search);
    refuse_if_must(spec.resume, own);
  }
  return std::move(search.newest);
}

std::optional<Checkpoint> wished_for(const Job& job) {
  const std::string& wish = job.spec().checkpoint.resume;
  if (wish == "auto" || wish == "must") return newest_seen(job);
  check_is_checkpoint(wish);
  return Checkpoint::look_into(wish);
}

}  // namespace

std::string preview_resume(const Job& job, bool accept_changes) {
  if (job.spec().checkpoint.resume == "never") return "off (checkpoint.resume: never)";
  const auto from = wished_for(job);
  if (!from) return "none found in " + RunFolder{job.output_dir}.checkpoints().string() + "  saves go there";
  try {
    check_job_changes(from->state().at("settings"), job, accept_changes, from->folder().string());
  } catch (const nlohmann::json::exception& failure) {
    throw Error(ExitCode::checkpoint, {.what = std::string("the checkpoint's state cannot be read: ") + failure.what(),
                                       .where = from->folder().string(),
                                       .hint = "resume from another one: --set checkpoint.resume=PATH"});
  }
  return "step " + grouped(from->step()) + " from " + from->folder().string() + "  its tensors are not read (dry run)";
}

}  // namespace gputrain::app
