#include "gputrain/run/preparation.hpp"

#include <filesystem>

#include "gputrain/core/error.hpp"
#include "gputrain/estimate/micro_batch.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/job/run_lock.hpp"
#include "gputrain/resume/checkpointing.hpp"
#include "gputrain/resume/kept_batch.hpp"
#include "gputrain/resume/resume_preview.hpp"
#include "gputrain/run/ending.hpp"
#include "shared_folder.hpp"

namespace gputrain::app {
namespace {

/// Finds errors that would appear only when the run folder is locked and the checkpoint is read. Rank 0 does both in a
/// run.
std::string look_at_run_folder(const RunRequest& request, const Job& job, const RankContext& context) {
  if (context.rank() != 0) return {};
  check_may_take_run_folder(job.output_dir, job.spec().checkpoint.resume == "never");
  return preview_resume(job, request.accept);
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
    check_run_folder_is_shared(job, context.groups);
    Preparation found{.job = job, .datasets = open_datasets(job), .micro_batch = {}};
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
