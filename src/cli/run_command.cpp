// Command `gputrain run`: the stages of a job, from the file to the trained model.
#include <csignal>
#include <optional>
#include <utility>

#include "commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/process.hpp"
#include "gputrain/device/fault.hpp"
#include "gputrain/estimate/memory.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/job/job_environment.hpp"
#include "gputrain/launch/environment.hpp"
#include "gputrain/run/preparation.hpp"
#include "gputrain/setup/compatibility.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/setup/weights.hpp"
#include "gputrain/train/preemption.hpp"
#include "planning/dry_run.hpp"

namespace gputrain::app {
namespace {

int run_job(const RunRequest& request, const Job& given) {
  RankContext context = create_rank_context(given);  // device, ranks, process groups
  monitor::Console console(monitor::Console::detect(context.rank() == 0));
  KernelStatus kernels(console, context.device);
  const Preparation found = prepare_run(request, given, context);  // data, checks, micro-batch
  const auto data = [&] { return found.datasets; };
  if (request.dry_run && context.device.is_cpu()) check_memory(found.job, context.launch.rendezvous, data);
  TrainingSetup setup(found.job, std::move(context), data,
                      found.kept_global_batch);  // plan, model, optimizer, reduction
  setup.micro_batch = found.micro_batch;
  if (request.dry_run) return try_out(found.job, setup, console, found.resume);
  return run_attempt(request, found.job, setup, console, kernels);  // resume, train, end
}

bool lacks_weights(const Job& job) {
  const auto& pretrained = job.spec().model.pretrained;
  return pretrained && awaits_weights(hub::pretrained_path_or_name(*pretrained));
}

/// Ranks of a run have nothing to load: rank 0 simulates all of them.
int dry_run_without_weights(const Job& job) {
  const auto rendezvous = launch::read_environment().rendezvous;
  if (rendezvous.rank > 0) return 0;
  return simulate_dry_run({.world_size = rendezvous.world_size, .ranks_here = rendezvous.local_world_size}, job);
}

}  // namespace

int run_command(const RunRequest& request) {
  std::optional<Job> job;
  try {
    job = load_job(request.job);
    job->loaded.require_secrets();
    const int64_t simulated = request.dry_run_request.world_size;
    const int ranks = launch::read_environment().rendezvous.world_size;
    check_compatibility(*job, mesh_of(*job, simulated > 0 ? static_cast<int>(simulated) : ranks));
  } catch (const Error& mistake) {
    if (!request.silent_if_wrong) fail_before_rendezvous(mistake);
    return static_cast<int>(ExitCode::usage);
  }
  if (job->spec().sweep)
    throw job->loaded.error("sweep", "the job is a search of many runs",
                            "`gputrain sweep` runs them; --set sweep=null runs the job alone");
  if (request.dry_run_request.world_size > 0) return simulate_dry_run(request.dry_run_request, *job);
  if (request.dry_run && lacks_weights(*job)) return dry_run_without_weights(*job);
  (request.dry_run ? take_harmless_environment : take_environment)(job->spec().env);
  train::watch_signals();
  if (is_init()) std::signal(SIGCHLD, SIG_IGN);  // the kernel then collects orphans
  try {
    return run_job(request, *job);
  } catch (const std::exception& failure) {
    auto known = out_of_memory_error(failure, *job, nullptr, "before the first step");
    if (!known) known = device::fault_of(failure);
    if (known) throw Error(*known);
    throw;
  }
}

}  // namespace gputrain::app
