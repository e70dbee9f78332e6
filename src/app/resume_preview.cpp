#include "resume_preview.hpp"

#include <filesystem>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/store.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "job_changes.hpp"
#include "newest_checkpoint.hpp"
#include "run_folder.hpp"

namespace gputrain::app {
namespace {

using checkpoint::Checkpoint;
using checkpoint::CheckpointStore;

/// Tensors are not read: that takes as long as the run itself needs for it.
CheckpointStore::Search look_for_newest(const std::filesystem::path& folder, const checkpoint::Lineage& history) {
  CheckpointStore store(folder);
  store.follow(history);
  return store.find_newest([](const Checkpoint&) {});
}

/// A mirror may be away.
std::optional<Checkpoint> newest_seen_in_mirror(const std::filesystem::path& mirror,
                                                const checkpoint::Lineage& history) {
  try {
    return look_for_newest(mirror, history).newest;
  } catch (const Error& error) {
    log::warning(std::string("the mirror cannot be read: ") + error.what());
    return std::nullopt;
  }
}

/// What a run may find good after all, as it reads what cannot be read now, is left to it where there is another one.
std::optional<Checkpoint> newest_seen(const Job& job) {
  const auto& spec = job.spec().checkpoint;
  const RunFolder run{job.output_dir};
  const auto folder = run.checkpoints();
  refuse_if_not_begun(run);
  const auto history = history_of(run, spec.mirror);
  auto [newest, rejected] = look_for_newest(folder, history);
  if (spec.mirror) {
    auto copy = newest_seen_in_mirror(*spec.mirror, history);
    if (copy && (!newest || copy->step() > newest->step())) newest = std::move(copy);
  }
  if (!newest && !rejected.empty()) {
    throw Error(ExitCode::checkpoint,
                {.what = "none of the run's checkpoints is good; the newest: " + rejected.front().reason,
                 .where = folder.string(),
                 .hint = "put a good copy there, or start over: --set checkpoint.resume=never keeps this run aside"});
  }
  if (!newest) {
    CheckpointStore own(folder);
    own.follow(history);
    refuse_if_all_are_left(own);
  }
  if (!newest && spec.resume == "must") {
    throw Error(ExitCode::checkpoint, {.what = "checkpoint.resume is must, but there is no good checkpoint",
                                       .where = folder.string(),
                                       .hint = "checkpoint.resume: auto starts from scratch when there is none"});
  }
  return newest;
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
    check_job_changes(from->state().at("settings"), job.loaded.settings(), accept_changes, from->folder().string());
  } catch (const nlohmann::json::exception& failure) {
    throw Error(ExitCode::checkpoint, {.what = std::string("the checkpoint's state cannot be read: ") + failure.what(),
                                       .where = from->folder().string(),
                                       .hint = "resume from another one: --set checkpoint.resume=PATH"});
  }
  return "step " + grouped(from->step()) + " from " + from->folder().string() + "  its tensors are not read (dry run)";
}

}  // namespace gputrain::app
