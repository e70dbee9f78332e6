// One attempt in its run folder.
#include <utility>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/summary.hpp"
#include "gputrain/ops/kernel_choices.hpp"
#include "gputrain/run/ending.hpp"
#include "gputrain/run/preparation.hpp"
#include "gputrain/run/rank_logs.hpp"
#include "gputrain/run/training.hpp"
#include "gputrain/setup/references.hpp"
#include "gputrain/setup/signature.hpp"

namespace gputrain::app {
namespace {

/// Enters the folder: rank 0 creates it; the other ranks use it afterwards.
TakenRunFolder enter_run_folder(const Job& job, RankContext& context) {
  TakenRunFolder taken{.folder = {job.output_dir}, .lock = {}};
  const auto& spec = job.spec().checkpoint;
  context.groups.on_rank_zero([&] { taken = take_run_folder(job.output_dir, spec.resume == "never", spec.mirror); },
                              "run folder");
  open_log(taken.folder, context);
  if (context.device.is_cuda()) ops::keep_kernel_choices(taken.folder.kernels(context.rank()));
  return taken;
}

/// Returns the job as its folder keeps it: --new is for one start alone.
config::Loaded kept_job(const RunRequest& request, const Job& job) {
  if (!request.is_new) return job.loaded;
  JobSpec spec = job.spec();
  spec.checkpoint.resume = "auto";
  return job.loaded.with(std::move(spec));
}

}  // namespace

int run_attempt(const RunRequest& request, const Job& job, TrainingSetup& setup, monitor::Console& console,
                KernelStatus& kernels) {
  const TakenRunFolder taken = enter_run_folder(job, setup.context);
  const RunFolder& folder = taken.folder;
  const bool writes = setup.context.rank() == 0;
  bool has_begun = false;
  try {
    if (writes) monitor::write_beginning(folder.summary(), {.run_id = job.run_id});
    take_references(job, setup, {.file = folder.references(), .say = [&](const std::string& what) {
                                   if (writes) console.line("reference", what);
                                 }});
    Training training(request, job, setup, console, kernels, taken);
    training.resume_run();
    if (writes) {
      write_file_atomically(folder.resolved(), kept_job(request, job).resolved_yaml(), ExitCode::environment);
      write_file_atomically(folder.signature(), signature_of(job, setup.datasets).text(), ExitCode::environment);
    }
    has_begun = true;
    return training.run();
  } catch (const std::exception& failure) {
    if (writes && !has_begun) record_failed_start(failure, job.run_id, folder);
    log::set_stderr_enabled(false);  // main prints it
    log::error(failure.what());
    fail(setup.context, failure);
  }
}

}  // namespace gputrain::app
