#include "dry_run.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "device_memory.hpp"
#include "dry_run_page.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/allocation_meter.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/estimate/scaled_activations.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/job/job_environment.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/run/start_page.hpp"
#include "gputrain/setup/weights.hpp"

namespace gputrain::app {
namespace {

comm::Rendezvous rendezvous_of(int rank, const DryRunRequest& request, const DryRunHosts& hosts) {
  const int each = std::max(1, hosts.ranks_per_host);
  return {.rank = rank,
          .world_size = request.world_size,
          .local_rank = rank % each,
          .local_world_size = std::min(each, request.world_size)};
}

void check_ranks(const JobDatasets& datasets, int world_size) {
  const int64_t samples = datasets.train->size();
  if (samples >= world_size) return;
  throw Error(ExitCode::usage, {.what = fmt::format("{} ranks share {} training samples: some would never have one",
                                                    world_size, samples),
                                .hint = fmt::format("at most --world-size {}, or more data", samples)});
}

/// Throws if memory or disk is too small. Called last, after everything else has been printed.
void refuse_what_does_not_fit(const Job& job, const DryRunEstimate& estimate, const TrainingSetup& setup) {
  const auto& memory = estimate.memory;
  const auto refuse = [&](const Memory& of_rank, const std::string& of_stage) {
    if (of_rank.fits()) return;
    throw Error(ExitCode::environment,
                {.what = fmt::format("a rank{} needs about {}, its device has {}", of_stage,
                                     monitor::bytes(of_rank.total()), monitor::bytes(of_rank.limit)),
                 .hint = memory_remedies(job, setup, of_rank)});
  };
  const auto& later = estimate.memory_of_later_stages;
  refuse(memory, later.empty() ? "" : " of stage 0");
  for (size_t i = 0; i < later.size(); ++i) refuse(later[i], fmt::format(" of stage {}", i + 1));
  const auto& checkpoint = estimate.checkpoint;
  if (!checkpoint.fits()) {
    throw Error(
        ExitCode::environment,
        {.what = fmt::format(
             "{} checkpoints at a time need {}{}, {} are free", checkpoint.most_at_once,
             monitor::bytes(checkpoint.most_at_once * checkpoint.bytes),
             checkpoint.frozen_bytes > 0 ? ", and the frozen weights " + monitor::bytes(checkpoint.frozen_bytes) : "",
             monitor::bytes(*checkpoint.free_bytes)),
         .where = job.output_dir.string(),
         .hint = "keep fewer (checkpoint.keep_last, keep_best, keep_every), or another --output-dir"});
  }
}

/// Returns the bytes of a rank's device; 0: not known.
int64_t limit_of(const DryRunRequest& request, const JobSpec& spec) {
  const int64_t bytes = device_bytes(request.device_memory, spec);
  return bytes == 0 && request.ranks_here > 0 ? device::host_memory_bytes() / request.ranks_here : bytes;
}

/// Says that the weights are not there, and how to get them.
std::string missing_weights(const JobSpec& spec) {
  const std::filesystem::path folder = spec.model.pretrained_path();
  const std::string fetch = hub::fetch_command_for(folder);
  return "there are no weights beside " + (folder / "config.json").string() + " yet" +
         (fetch.empty() ? "" : ", " + fetch);
}

/// Returns predictions for a model with which no steps are taken here; null for others.
std::unique_ptr<PredictedActivations> predictions_for(const Job& job, const TrainingSetup& sizes,
                                                      const std::string& obstacle) {
  if (obstacle.empty()) return nullptr;
  if (can_scale(job)) return std::make_unique<PredictedActivations>(job, sizes.datasets, sizes.context);
  throw Error(
      ExitCode::environment,
      {.what = "a dry run takes small steps on this machine's CPU, and " + obstacle,
       .where = "model.architecture: " + job.spec().model.architecture.name,
       .hint = "a smaller model of the same kind, or a machine with more memory; what a step needs is predicted "
               "without one only for models of type gpt without model.freeze"});
}

}  // namespace

int simulate_dry_run(const DryRunRequest& request, const Job& job) {
  const JobSpec& spec = job.spec();
  take_harmless_environment(spec.env);
  const int world = request.world_size;
  const DryRunHosts hosts = plan_dry_run_hosts(spec.launch, world);
  const int64_t limit = limit_of(request, spec);
  const auto traffic = std::make_shared<comm::CollectiveTraffic>();
  const auto simulate = [&](int rank) { return simulate_rank(job, rendezvous_of(rank, request, hosts), traffic); };

  RankContext context = simulate(0);
  // Gathered weights get memory when their tensors are made: the meter of trial steps must exist before.
  { const device::AllocationMeter meter; }
  const bool has_values = !awaits_weights(spec.model.pretrained_path());
  const JobDatasets datasets = open_datasets(job, has_values ? Purpose::learning : Purpose::planning);
  plan_run(spec, datasets, context);  // fails before anything large is built
  check_ranks(datasets, world);
  check_sample(job, datasets);
  const auto open = [&] { return datasets; };
  const TrainingSetup sizes(job, simulate(0), open, 0, Weights::sizes);
  std::string obstacle = obstacle_to_steps(sizes);
  if (!has_values && can_scale(job)) obstacle = missing_weights(spec);
  const auto predicted = predictions_for(job, sizes, obstacle);
  const Weights weights = predicted ? Weights::sizes : has_values ? Weights::values : Weights::made_up;
  const Job stepped = weights == Weights::made_up ? without_pretrained(job) : job;
  if (world > 1) TrainingSetup(stepped, simulate(world - 1), open, 0, weights);
  std::vector<StageEstimate> later_stages;
  const comm::Mesh mesh = context.groups.mesh();
  for (int stage = 1; stage < mesh.pipeline; ++stage) {
    TrainingSetup at(stepped, simulate(stage * mesh.stage_ranks()), open, 0, weights);
    later_stages.push_back(make_stage_estimate(stepped, at, limit, predicted.get()));
  }
  TrainingSetup setup(stepped, std::move(context), open, 0, weights);
  DryRunEstimate estimate = make_dry_run_estimate(stepped, setup, *traffic, limit, later_stages, predicted.get());
  if (!has_values) estimate.first_loss.reset();

  if (request.json) std::printf("%s\n", to_json(job, setup, hosts, estimate).dump(2).c_str());
  monitor::Console console(monitor::Console::detect(!request.json));
  print_start_page(console, job, setup,
                   {.hosts = request.ranks_here > 0 ? counted(world, "rank") + " on this machine" : hosts.text,
                    .memory = memory_text(estimate.memory),
                    .saves = "auto",
                    .resume = "not looked for (dry run)"});
  print_dry_run_page(console, job, setup, estimate, hosts.ranks_per_host);
  refuse_what_does_not_fit(job, estimate, setup);
  // A task that compares with the model before training has no reference here, and this rank may have a part of it.
  const bool is_known = setup.datasets.task->reference_numbers() == 0 && !setup.built.has_parts();
  std::string steps;
  if (predicted) steps = "no step was taken: " + obstacle + "; ";
  if (!predicted && !has_values) steps = "no loss was computed: " + missing_weights(spec) + "; ";
  if (estimate.first_loss && is_known) steps = "first loss " + monitor::significant(*estimate.first_loss) + "; ";
  console.line("dry run",
               "all checks passed; " + steps + "memory besides: the GPU's context, NCCL, cuBLAS; nothing was written");
  return 0;
}

}  // namespace gputrain::app
