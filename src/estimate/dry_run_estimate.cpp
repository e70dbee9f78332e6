#include "gputrain/estimate/dry_run_estimate.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "gputrain/device/host.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/estimate/plan_candidate.hpp"
#include "gputrain/estimate/rank_layout.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/resume/checkpoint_room.hpp"
#include "gputrain/resume/checkpointing.hpp"
#include "gputrain/setup/training_loop.hpp"
#include "gputrain/setup/training_state.hpp"
#include "gputrain/setup/weights.hpp"

namespace gputrain::app {
namespace {

Times times_of(const train::Cadence& cadence, const train::Plan& plan) {
  if (plan.is_time_limited() || cadence.is_auto || cadence.seconds > 0) return std::nullopt;
  const auto multiples = [&](int64_t steps) { return steps > 0 ? plan.total_steps / steps : 0; };
  int64_t times = multiples(cadence.steps) + multiples(cadence.also_steps), both = 0;
  const int64_t divisor = std::max<int64_t>(1, std::gcd(cadence.steps, cadence.also_steps));
  if (!__builtin_mul_overflow(cadence.steps / divisor, cadence.also_steps, &both)) times -= multiples(both);
  return times + (cadence.at_step(plan.total_steps) ? 0 : 1);
}

/// Returns whether a checkpoint with a new best score may be saved between the regular saves.
bool saves_between(const JobSpec& spec, const TrainingSetup& setup) {
  const auto& [save, eval] = std::pair(setup.plan.save, setup.plan.eval);
  if (best_metric_of(spec, setup.datasets).empty() || save.is_never() || eval.is_never()) return false;
  return save.steps == 0 || eval.steps == 0 || eval.steps % save.steps != 0;
}

/// Computes each rank's part in turn with that rank's own code. Takes no memory: the state's pages stay untouched.
ShardEstimate estimate_shards(const Job& job, TrainingSetup& setup) {
  auto& built = setup.built;
  device::Arena& arena = *built.arena;
  const comm::Mesh& mesh = setup.context.groups.mesh();
  const auto rank_here = static_cast<size_t>(mesh.shard_of(setup.context.rank()));
  ShardEstimate shards{.fewest_owned = INT64_MAX};
  const int ranks = built.owners.empty() ? 1 : static_cast<int>(built.owners.size());
  for (int rank = 0; rank < ranks; ++rank) {
    if (!built.owners.empty()) arena.own(built.owners[static_cast<size_t>(rank)]);
    const OptimizerStack optimizer_stack = build_optimizer_stack(job, setup.context, setup.plan, built);
    const int together = built.tensor_ranks();  // the first of these ranks has a little more than the others
    const int place = rank * together,
              writer = built.writer_of_state(mesh, mesh.first_like(setup.context.rank()) + place);
    const auto shard = optimizer_shard(built, *optimizer_stack.optimizer, writer);
    const auto file = static_cast<int64_t>(checkpoint::safetensors_bytes(shard.tensors));
    const int64_t owned = arena.owned_numel() * arena.element_bytes();
    shards.most_owned = std::max(shards.most_owned, owned);
    shards.fewest_owned = std::min(shards.fewest_owned, owned);
    shards.owning_nothing += owned == 0;
    const FixedMemory fixed = fixed_memory(built, optimizer_stack);
    shards.most_state = std::max(shards.most_state, fixed.optimizer_state);
    shards.most_on_host = std::max(shards.most_on_host, fixed.state_on_host);
    shards.files_bytes += file * together;
    shards.largest_file = std::max(shards.largest_file, file);
    const int writer_of_weights = built.writer_of_weights(mesh, mesh.first_like(setup.context.rank()) + place);
    if (writer_of_weights < 0 || !built.has_parts()) continue;
    const auto weights =
        static_cast<int64_t>(checkpoint::safetensors_bytes(model_shard(built, writer_of_weights).tensors));
    shards.files_bytes += weights * together;
    shards.largest_file = std::max(shards.largest_file, weights);
  }
  if (!built.owners.empty()) arena.own(built.owners[rank_here]);
  return shards;
}

CommunicationEstimate estimate_communication(const TrainingSetup& setup) {
  const auto& arena = *setup.built.arena;
  CommunicationEstimate communication;
  if (setup.context.groups.alone()) return communication;
  communication.bytes_per_rank = traffic_of_step(setup).bytes;
  for (const device::Range& bucket : parallel::plan_buckets(arena, setup.gradient_sync.buckets)) {
    ++communication.buckets;
    communication.largest_bucket = std::max(communication.largest_bucket, bucket.size() * arena.element_bytes());
  }
  return communication;
}

/// Estimates a checkpoint without its JSON files, which have a few kilobytes.
CheckpointEstimate estimate_checkpoint(const Job& job, TrainingSetup& setup, const ShardEstimate& shards, Times saves) {
  const auto& built = setup.built;
  const auto retention = retention_of(job.spec().checkpoint, setup.plan, best_metric_of(job.spec(), setup.datasets));
  const at::Tensor generator = device::generator_state(setup.context.device).unsqueeze(0);
  const at::Tensor generators = generator.expand({setup.context.groups.world_size(), -1});
  const int64_t model =
      built.has_parts() ? 0 : static_cast<int64_t>(checkpoint::safetensors_bytes(trained_weights(*built.model)));
  const auto random = static_cast<int64_t>(checkpoint::safetensors_bytes({{"cpu", generators}}));
  CheckpointEstimate checkpoint{.files = 1 + built.ranks_of_state() + built.ranks_of_weights(),
                                .bytes = model + random + shards.files_bytes,
                                .largest_file = std::max(model, shards.largest_file),
                                .free_bytes = free_bytes_below(job.output_dir)};
  if (const auto frozen = frozen_weights(*built.model); !frozen.empty())
    checkpoint.frozen_bytes = static_cast<int64_t>(checkpoint::safetensors_bytes(frozen));
  int64_t kept = retention.keep_last + retention.keep_best;
  if (retention.keep_every > 0 && !setup.plan.is_time_limited()) kept += setup.plan.total_steps / retention.keep_every;
  checkpoint.most_at_once = (saves ? std::min(*saves, kept) : kept) + 1;
  if (!setup.plan.save.is_never()) checkpoint.copy_bytes = checkpoint_bytes(setup);
  return checkpoint;
}

/// Returns the operations of a step with one sample; if the model gives none, 2 per weight forward and 4 backward.
double operations_of(const TrainingSetup& setup) {
  return std::max(setup.built.model->flops_per_sample(), 6.0 * static_cast<double>(setup.built.parameter_count));
}

/// Returns as many samples as take a few seconds and a quarter of this machine's memory; at least 2.
int64_t samples_to_try(const TrainingSetup& setup, int64_t bytes_of_one) {
  constexpr double kMostOperations = 5e11;
  const auto in_time = static_cast<int64_t>(kMostOperations / operations_of(setup));
  return std::max<int64_t>(2, std::min(in_time, device::host_memory_bytes() / 4 / std::max<int64_t>(1, bytes_of_one)));
}

/// Returns the largest micro-batch that fits, among those that a run would try; if none fits, the smallest.
int64_t largest_that_fits(const Memory& memory) {
  auto sizes = train::micro_batches_to_try(memory.micro_batch);
  while (sizes.size() > 1 && memory.limit > 0 && memory.total(sizes.back()) > memory.limit) sizes.pop_back();
  return sizes.back();
}

/// Counts the collectives of a whole step, given those of its first micro-batch: the others may send nothing, or as
/// much. Takes a step of two, or in a pipeline of all.
comm::CollectiveTraffic traffic_of_all_passes(const Job& job, TrainingSetup& setup,
                                              const comm::CollectiveTraffic& so_far,
                                              const comm::CollectiveTraffic& first) {
  const int64_t more = setup.plan.batch.accumulation - 1;
  if (more == 0 || setup.context.groups.alone()) return first;
  const comm::CollectiveTraffic before = so_far;
  if (setup.built.pipeline) {
    take_trial_step(job, setup, 1, setup.plan.batch.accumulation);
    return so_far - before;
  }
  take_trial_step(job, setup, 1, 2);
  return first.plus(more, (so_far - before) - first);
}

/// Returns the number of micro-batches that fills the pipeline; more do not raise the peak.
int64_t passes_to_measure(const TrainingSetup& setup) {
  if (!setup.built.pipeline) return 1;
  const auto shape = setup.built.pipeline->shape(setup.plan.batch.accumulation);
  return std::min(shape.micro_batches, shape.stages * (shape.parts > 1 ? 2 : 1));
}

}  // namespace

PlacedActivations measure_activations(const Job& job, TrainingSetup& setup, const TrialStep& one,
                                      int64_t most_samples) {
  const int64_t samples = std::min(most_samples, samples_to_try(setup, one.peak_bytes + one.host_bytes));
  const int64_t passes = passes_to_measure(setup);
  PlacedActivations activations;
  for (const int64_t each : {samples / 2, samples}) {
    if (each == 0) continue;
    const TrialStep step = each == 1 ? one : take_trial_step(job, setup, each, passes);
    activations.on_device.measure(each, step.peak_bytes);
    activations.on_host.measure(each, step.host_bytes);
  }
  return activations;
}

namespace {

/// Returns the memory that is allocated for the whole run, on the rank that has most.
FixedMemory most_fixed_memory(const TrainingSetup& setup, const ShardEstimate& shards) {
  FixedMemory fixed = fixed_memory(setup.built, setup.optimizer_stack);
  fixed.optimizer_state = shards.most_state;
  fixed.state_on_host = shards.most_on_host;
  if (setup.built.arena->keeps_owned_gradients_only()) fixed.gradients = shards.most_owned;
  if (setup.built.arena->keeps_owned_values_only()) fixed.parameters = shards.most_owned;
  return fixed;
}

data::EpochShares epoch_of(const Job& job, const TrainingSetup& setup) {
  const auto& batch = setup.plan.batch;
  return data::walk_epoch(order_facts(job.spec(), setup), {.global_batch = batch.global_batch,
                                                           .micro_batch = batch.micro_batch,
                                                           .world_size = setup.context.groups.mesh().samples()});
}

PlacedActivations predict_activations(const Job& job, TrainingSetup& setup, int64_t most_samples,
                                      PredictedActivations& predicted) {
  PlanCandidate candidate = candidate_of(job.spec(), setup.plan.batch);
  predicted.expect({.tensor = candidate.tensor, .context = candidate.context});
  const RankLayout layout = rank_layout(job, setup.datasets, setup.plan, setup.context);
  PlacedActivations activations{.on_device = {.is_predicted = true}, .on_host = {.is_predicted = true}};
  for (const int64_t samples : {int64_t{1}, most_samples}) {
    if (samples <= activations.on_device.measured_samples) continue;
    candidate.micro_batch = samples;
    activations.on_device.measure(samples, predicted.bytes(candidate, layout));
    activations.on_host.measure(samples, predicted.bytes_on_host(candidate, layout));
  }
  return activations;
}

/// Adds the files that the ranks of another stage write.
void add_files(ShardEstimate& shards, const ShardEstimate& more) {
  shards.files_bytes += more.files_bytes;
  shards.largest_file = std::max(shards.largest_file, more.largest_file);
}

}  // namespace

std::string obstacle_to_steps(const TrainingSetup& setup) {
  constexpr double kMostOperations = 1e13;
  const double operations = operations_of(setup);
  if (operations > kMostOperations) return fmt::format("a step with one sample has {:.0e} operations", operations);
  const int64_t needed = fixed_memory(setup.built, setup.optimizer_stack).with_host(),
                here = device::host_memory_bytes();
  if (needed <= here / 2) return {};
  return fmt::format("a rank holds {} before its first step, and this machine has {}", monitor::bytes(needed),
                     monitor::bytes(here));
}

StageEstimate make_stage_estimate(const Job& job, TrainingSetup& setup, int64_t device_bytes,
                                  PredictedActivations* predicted) {
  StageEstimate stage{.shards = estimate_shards(job, setup), .memory = {}};
  Memory& memory = stage.memory;
  memory.fixed = most_fixed_memory(setup, stage.shards);
  memory.micro_batch = epoch_of(job, setup).most_rows;
  memory.limit = device_bytes;
  memory.place(predicted != nullptr
                   ? predict_activations(job, setup, memory.micro_batch, *predicted)
                   : measure_activations(job, setup, take_trial_step(job, setup, 1, passes_to_measure(setup)),
                                         memory.micro_batch));
  return stage;
}

DryRunEstimate make_dry_run_estimate(const Job& job, TrainingSetup& setup, const comm::CollectiveTraffic& traffic,
                                     int64_t device_bytes, const std::vector<StageEstimate>& later_stages,
                                     PredictedActivations* predicted) {
  const auto& plan = setup.plan;
  DryRunEstimate estimate;
  estimate.epoch = epoch_of(job, setup);
  if (setup.datasets.val) estimate.evaluations = times_of(plan.eval, plan);
  if (estimate.evaluations && job.spec().eval.at_start) ++*estimate.evaluations;
  estimate.saves = times_of(plan.save, plan);
  estimate.saves_more = saves_between(job.spec(), setup);
  estimate.first_lr = setup.optimizer_stack.schedule->lr(0);
  if (!plan.is_time_limited()) estimate.last_lr = setup.optimizer_stack.schedule->lr(plan.curve_steps() - 1);
  estimate.shards = estimate_shards(job, setup);
  for (const StageEstimate& stage : later_stages) {
    add_files(estimate.shards, stage.shards);
    estimate.memory_of_later_stages.push_back(stage.memory);
  }
  estimate.checkpoint = estimate_checkpoint(job, setup, estimate.shards, estimate.saves);

  auto& memory = estimate.memory;
  memory.fixed = most_fixed_memory(setup, estimate.shards);
  memory.micro_batch = estimate.epoch.most_rows;
  estimate.host_data = batch_bytes(*setup.datasets.train, memory.micro_batch) * batches_ahead(job.spec(), plan.batch);
  memory.limit = device_bytes;
  estimate.communication = estimate_communication(setup);
  if (predicted != nullptr) {
    memory.place(predict_activations(job, setup, memory.micro_batch, *predicted));
  } else {
    const comm::CollectiveTraffic before = traffic;
    const TrialStep one = take_trial_step(job, setup, 1, passes_to_measure(setup));
    estimate.first_loss = one.loss;
    estimate.communication.traffic = traffic_of_all_passes(job, setup, traffic, traffic - before);
    memory.place(measure_activations(job, setup, one, memory.micro_batch));
  }
  if (job.spec().train.searches_micro_batch()) memory.micro_batch = largest_that_fits(memory);
  return estimate;
}

}  // namespace gputrain::app
