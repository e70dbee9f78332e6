#include "gputrain/run/preparation.hpp"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "gputrain/chat/local_time.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/estimate/micro_batch.hpp"
#include "gputrain/job/job_changes.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/job/run_lock.hpp"
#include "gputrain/resume/checkpointing.hpp"
#include "gputrain/resume/kept_batch.hpp"
#include "gputrain/resume/resume_point.hpp"
#include "gputrain/run/ending.hpp"
#include "shared_folder.hpp"

namespace gputrain::app {
namespace {

/// Returns the line of the start page of a dry run about where a run would start. Sizes and states of checkpoints are
/// compared with their manifests, tensors are not read. Throws as a run would.
std::string preview_resume(const Job& job, bool accept_changes) {
  if (job.spec().checkpoint.resume == "never") return "off (--new, or checkpoint.resume: never)";
  // Tensors are not read: that takes as long as the run itself needs for it.
  const auto from = look_for_checkpoint(job, [](const checkpoint::Checkpoint&) {});
  if (!from) return "none found in " + RunFolder{job.output_dir}.checkpoints().string() + "  saves go there";
  try {
    check_job_changes(from->state().at("settings"), job, accept_changes, from->folder().string());
  } catch (const nlohmann::json::exception& failure) {
    throw Error(ExitCode::checkpoint, {.what = "the checkpoint's state cannot be read: " + reason_in(failure),
                                       .where = from->folder().string(),
                                       .hint = "resume from another one: --set checkpoint.resume=PATH"});
  }
  return "step " + grouped(from->step()) + " from " + from->folder().string() + "  its tensors are not read (dry run)";
}

/// Finds errors that would appear only when the run folder is locked and the checkpoint is read. Rank 0 does both in a
/// run.
std::string look_at_run_folder(const RunRequest& request, const Job& job, const RankContext& context) {
  if (context.rank() != 0) return {};
  check_may_take_run_folder(job.output_dir, job.spec().checkpoint.resume == "never");
  return preview_resume(job, request.accept);
}

/// Opens the data with the time of rank 0, whose host has the run's ledger; clocks and time zones of others may differ.
JobDatasets open_on_all_ranks(const Job& job, comm::ProcessGroups& groups) {
  if (groups.alone()) return open_datasets(job);
  const std::string own = groups.rank() == 0 ? chat::text_of(time_of_texts(job)) : "";
  const std::string time = groups.from_rank_zero(own, "time of texts");
  groups.control().barrier("time of texts");  // no rank must fail before all have the time
  return open_datasets(job, Purpose::learning, chat::local_time_from(time));
}

void check_against_data(const RunRequest& request, const Job& job, const JobDatasets& datasets) {
  const JobSpec& spec = job.spec();
  check_sample(job, datasets);
  if (spec.checkpoint.mirror) check_mirror(*spec.checkpoint.mirror, job.output_dir);
  if (request.verify && !spec.expect)
    throw Error(ExitCode::usage, {.what = "--verify has nothing to verify: the job has no `expect:`",
                                  .hint = "expect: {val/loss: [1.2, 1.4]}"});
  check_expected_metrics(spec, datasets);
  if (spec.checkpoint.metric.value) watched_metric_of(spec, datasets);
}

}  // namespace

Preparation prepare_run(const RunRequest& request, const Job& job, RankContext& context) {
  try {
    check_what_hosts_share(job, context);
    Preparation found{.job = job, .datasets = open_on_all_ranks(job, context.groups), .micro_batch = {}};
    check_data_is_the_same(found.datasets, context);
    check_against_data(request, job, found.datasets);
    if (request.dry_run) {
      found.resume = look_at_run_folder(request, job, context);
      return found;
    }
    found.kept_global_batch = kept_global_batch(job, context);
    if (!job.spec().train.searches_micro_batch()) return found;
    if (context.rank() == 0 && exists(job.output_dir)) RunLock(job.output_dir);  // throws if it is in use
    found.micro_batch = choose_micro_batch(job, context, found.datasets);
    found.job = with_micro_batch(job, found.micro_batch.micro_batch);
    return found;
  } catch (const std::exception& failure) {
    fail(context, failure);
  }
}

}  // namespace gputrain::app
