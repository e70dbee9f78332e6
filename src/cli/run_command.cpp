// `gputrain run`: the way a job takes, from the file to the trained model.
#include <csignal>
#include <optional>
#include <string>

#include "dry_run.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/process.hpp"
#include "gputrain/device/fault.hpp"
#include "gputrain/estimate/memory_page.hpp"
#include "gputrain/estimate/micro_batch.hpp"
#include "gputrain/job/commands.hpp"
#include "gputrain/job/job_environment.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/monitor/summary.hpp"
#include "gputrain/resume/checkpoint_room.hpp"
#include "gputrain/resume/checkpointing.hpp"
#include "gputrain/resume/kept_batch.hpp"
#include "gputrain/resume/resume_preview.hpp"
#include "gputrain/run/ending.hpp"
#include "gputrain/run/rank_logs.hpp"
#include "gputrain/run/start_page.hpp"
#include "gputrain/run/training.hpp"
#include "gputrain/setup/assembly.hpp"

namespace gputrain::app {
namespace {

/// Everything short of training: reads one step of data and computes its loss, writes nothing.
int try_out(const Job& job, Assembly& assembly, monitor::Console& console, const std::string& resume) {
  print_start_page(console, job, assembly, {.saves = "auto", .resume = resume});
  auto options = loader_options(job.spec(), *assembly.datasets.train, assembly.place, assembly.plan.batch);
  if (job.spec().train.searches_micro_batch()) options.share.micro_batch = 1;
  data::Loader loader(assembly.datasets.train, options);
  const auto step = loader.next_step();
  const auto& batch = step.micro_batches.front();
  const auto loss = assembly.built.model->loss(loader.to_device(batch), job.spec().train.label_smoothing);
  const double mean = loss.sum.item<double>() / static_cast<double>(batch.weight);
  for (const auto& shortage : disks_too_small(job, assembly)) {
    if (shortage.for_one) throw Error(shortage.error);
    log::warning(shortage.error.what());
  }
  console.line("dry run", "all checks passed; first loss " + monitor::significant(mean) + "; nothing was written");
  return 0;
}

int dry_run(const Job& job, Assembly& assembly, monitor::Console& console, const std::string& resume) {
  try {
    return try_out(job, assembly, console, resume);
  } catch (const std::exception& failure) {
    if (const auto shortage = out_of_memory_error(failure, job, &assembly, "in the dry run")) throw Error(*shortage);
    throw;
  }
}

/// The folder is rank 0's to make; the others use it once it is there.
TakenRunFolder enter_run_folder(const Job& job, Place& place) {
  TakenRunFolder taken{.folder = {job.output_dir}, .lock = {}};
  const auto& spec = job.spec().checkpoint;
  place.groups.on_rank_zero([&] { taken = take_run_folder(job.output_dir, spec.resume == "never", spec.mirror); },
                            "run folder");
  open_log(taken.folder, place);
  return taken;
}

/// What a run is assembled from.
struct Start {
  Job job;  // as it was given, and what was found for it
  Datasets datasets;
  MicroBatchChoice micro_batch;
  int64_t kept_global_batch = 0;
  std::string resume = {};  // rank 0's, of a dry run: where a run would start from
};

/// What a run finds when it takes its folder and its checkpoint. Both are rank 0's to choose.
std::string look_at_run_folder(const RunRequest& request, const Job& job, const Place& place) {
  if (place.rank() != 0) return {};
  check_may_take_run_folder(job.output_dir, job.spec().checkpoint.resume == "never");
  return preview_resume(job, request.accept);
}

Start prepare(const RunRequest& request, const Job& job, Place& place) {
  try {
    Start start{.job = job, .datasets = open_datasets(job), .micro_batch = {}};
    check_sample(job, start.datasets);
    if (const auto& mirror = job.spec().checkpoint.mirror) check_mirror(*mirror, job.output_dir);
    if (request.verify && !job.spec().expect)
      throw Error(ExitCode::usage, {.what = "--verify has nothing to verify: the job has no `expect:`",
                                    .hint = "expect: {val/loss: [1.2, 1.4]}"});
    check_expected_metrics(job.spec(), start.datasets);
    if (job.spec().checkpoint.metric.value) watched_metric_of(job.spec(), start.datasets);
    if (request.dry_run) start.resume = look_at_run_folder(request, job, place);
    if (request.dry_run) return start;
    start.kept_global_batch = kept_global_batch(job, place);
    if (!job.spec().train.searches_micro_batch()) return start;
    if (place.rank() == 0 && exists(job.output_dir)) RunLock(job.output_dir);  // nobody is disturbed who trains there
    start.micro_batch = choose_micro_batch(job, place, start.datasets);
    start.job = with_micro_batch(job, start.micro_batch.micro_batch);
    return start;
  } catch (const std::exception& failure) {
    fail(place, failure);
  }
}

int run_job(const RunRequest& request, const Job& given) {
  Place place = take_place(given);
  const auto [job, datasets, micro_batch, kept_global_batch, resume] = prepare(request, given, place);
  Assembly assembly(
      job, std::move(place), [&] { return datasets; }, kept_global_batch);
  assembly.micro_batch = micro_batch;
  monitor::Console console(monitor::Console::detect(assembly.place.rank() == 0));
  if (request.dry_run) return dry_run(job, assembly, console, resume);

  const TakenRunFolder taken = enter_run_folder(job, assembly.place);
  const RunFolder& folder = taken.folder;
  const bool writes = assembly.place.rank() == 0;
  bool has_begun = false;
  try {
    if (writes) monitor::write_beginning(folder.summary(), {.run_id = job.run_id});
    Training training(request, job, assembly, console, taken);
    if (writes) write_file_atomically(folder.resolved(), job.loaded.resolved_yaml(), ExitCode::environment);
    has_begun = true;
    return training.run();
  } catch (const std::exception& failure) {
    if (writes && !has_begun) record_failed_start(failure, job.run_id, folder);
    log::set_stderr_enabled(false);  // there main says it
    log::error(failure.what());
    fail(assembly.place, failure);
  }
}

}  // namespace

int run_command(const RunRequest& request) {
  std::optional<Job> read;
  try {
    read = load_job(request.job);
  } catch (const Error& mistake) {
    if (!request.silent_if_wrong) fail_unmet(mistake);
    return static_cast<int>(ExitCode::usage);
  }
  const Job& job = *read;
  if (request.rehearsal.world_size > 0) return rehearse(request.rehearsal, job);
  take_environment(job.spec().env);
  train::watch_signals();
  if (is_init())
    std::signal(SIGCHLD, SIG_IGN);  // it has no children of its own: orphans, which the kernel then collects
  try {
    return run_job(request, job);
  } catch (const std::exception& failure) {
    auto known = out_of_memory_error(failure, job, nullptr, "before the first step");
    if (!known) known = device::fault_of(failure);
    if (known) throw Error(*known);
    throw;
  }
}

}  // namespace gputrain::app
