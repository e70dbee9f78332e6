#include "gputrain/estimate/forecast.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "gputrain/device/host.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/resume/checkpoint_room.hpp"
#include "gputrain/resume/checkpointing.hpp"
#include "gputrain/resume/record.hpp"
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

/// Whether a checkpoint with a new best score may be saved between the regular saves.
bool saves_between(const JobSpec& spec, const Assembly& assembly) {
  const auto& [save, eval] = std::pair(assembly.plan.save, assembly.plan.eval);
  if (best_metric_of(spec, assembly.datasets).empty() || save.is_never() || eval.is_never()) return false;
  return save.steps == 0 || eval.steps == 0 || eval.steps % save.steps != 0;
}

struct FilesForecast {
  int64_t count = 0, bytes = 0, largest = 0;
};

/// Computes each rank's part in turn with that rank's own code. Does not touch the state's pages, so it takes no
/// memory.
ShardForecast forecast_shards(const Job& job, Assembly& assembly) {
  auto& built = assembly.built;
  device::Arena& arena = *built.arena;
  const device::Range own = arena.owned();
  const auto item = static_cast<int64_t>(arena.values().itemsize());
  ShardForecast shards{.fewest_owned = INT64_MAX};
  const int ranks = built.owners.empty() ? 1 : static_cast<int>(built.owners.size());
  for (int rank = 0; rank < ranks; ++rank) {
    if (!built.owners.empty()) arena.own(built.owners[static_cast<size_t>(rank)]);
    const Updates updates = build_updates(job, assembly.place, assembly.plan, built);
    const auto shard = optimizer_shard(built, *updates.optimizer, rank);
    const auto file = static_cast<int64_t>(checkpoint::safetensors_bytes(shard.tensors));
    const int64_t owned = arena.owned().size() * item;
    shards.most_owned = std::max(shards.most_owned, owned);
    shards.fewest_owned = std::min(shards.fewest_owned, owned);
    shards.owning_nothing += owned == 0;
    shards.most_state = std::max(shards.most_state, fixed_memory(built, updates).optimizer_state);
    shards.files_bytes += file;
    shards.largest_file = std::max(shards.largest_file, file);
  }
  arena.own(own);
  return shards;
}

WireForecast forecast_wires(const Assembly& assembly, const comm::Traffic& of_a_step) {
  const auto& arena = *assembly.built.arena;
  WireForecast wires{.traffic = of_a_step};
  if (assembly.place.groups.alone()) return wires;
  wires.bytes_per_rank = traffic_of_step(assembly).bytes;
  for (const device::Range& bucket : parallel::plan_buckets(arena, assembly.reduction.buckets)) {
    ++wires.buckets;
    wires.largest_bucket =
        std::max(wires.largest_bucket, bucket.size() * static_cast<int64_t>(arena.values().itemsize()));
  }
  return wires;
}

/// Files of the compression state: every rank writes its errors, rank 0 also the factors.
FilesForecast forecast_compression(const Assembly& assembly) {
  const auto& groups = assembly.place.groups;
  if (!assembly.reduction.power_sgd) return {};
  checkpoint::Shard shard = assembly.reduction.shard(groups);
  const auto first = static_cast<int64_t>(checkpoint::safetensors_bytes(shard.tensors));
  std::erase_if(shard.tensors, [&](const auto& tensor) { return !shard.slices.contains(tensor.first); });
  const auto other = static_cast<int64_t>(checkpoint::safetensors_bytes(shard.tensors));
  return {.count = groups.world_size(), .bytes = first + other * (groups.world_size() - 1), .largest = first};
}

/// Ignores JSON files, which have a few kilobytes.
CheckpointForecast forecast_checkpoint(const Job& job, Assembly& assembly, const ShardForecast& shards, Times saves) {
  const auto& built = assembly.built;
  const auto retention =
      retention_of(job.spec().checkpoint, assembly.plan, best_metric_of(job.spec(), assembly.datasets));
  const at::Tensor generator = device::generator_state(assembly.place.device).unsqueeze(0);
  const at::Tensor generators = generator.expand({assembly.place.groups.world_size(), -1});
  const auto model = static_cast<int64_t>(checkpoint::safetensors_bytes(trained_weights(*built.model)));
  const auto random = static_cast<int64_t>(checkpoint::safetensors_bytes({{"cpu", generators}}));
  const FilesForecast compression = forecast_compression(assembly);
  CheckpointForecast checkpoint{.files = 2 + std::max<int64_t>(1, std::ssize(built.owners)) + compression.count,
                                .bytes = model + random + shards.files_bytes + compression.bytes,
                                .largest_file = std::max({model, shards.largest_file, compression.largest}),
                                .free_bytes = free_bytes_below(job.output_dir)};
  if (const auto frozen = frozen_weights(*built.model); !frozen.empty())
    checkpoint.frozen_bytes = static_cast<int64_t>(checkpoint::safetensors_bytes(frozen));
  int64_t kept = retention.keep_last + retention.keep_best;
  if (retention.keep_every > 0 && !assembly.plan.is_time_limited())
    kept += assembly.plan.total_steps / retention.keep_every;
  checkpoint.most_at_once = (saves ? std::min(*saves, kept) : kept) + 1;
  if (!assembly.plan.save.is_never()) checkpoint.copy_bytes = checkpoint_bytes(assembly);
  return checkpoint;
}

/// As many samples as take a few seconds and a quarter of this machine's memory; at least 2.
int64_t samples_to_try(const Assembly& assembly, int64_t bytes_of_one) {
  constexpr double kMostOperations = 5e11;
  // If the model gives no number: at least 2 operations per weight forward and 4 backward.
  const double operations =
      std::max(assembly.built.model->flops_per_sample(), 6.0 * static_cast<double>(assembly.built.parameter_count));
  const auto in_time = static_cast<int64_t>(kMostOperations / operations);
  return std::max<int64_t>(2, std::min(in_time, device::host_memory_bytes() / 4 / std::max<int64_t>(1, bytes_of_one)));
}

/// The largest micro-batch that fits, of those that a run would try; if none fits, the smallest.
int64_t largest_that_fits(const Memory& memory) {
  auto sizes = train::micro_batches_to_try(memory.micro_batch);
  while (sizes.size() > 1 && memory.limit > 0 && memory.total(sizes.back()) > memory.limit) sizes.pop_back();
  return sizes.back();
}

}  // namespace

Activations measure_activations(const Job& job, Assembly& assembly, const TrialStep& one, int64_t most_samples) {
  const int64_t samples = std::min(most_samples, samples_to_try(assembly, one.peak_bytes));
  Activations activations;
  for (const int64_t each : {samples / 2, samples}) {
    if (each > 0)
      activations.measure(each, each == 1 ? one.peak_bytes : take_trial_step(job, assembly, each).peak_bytes);
  }
  return activations;
}

Forecast make_forecast(const Job& job, Assembly& assembly, const comm::Traffic& traffic, int64_t device_bytes) {
  const auto& plan = assembly.plan;
  Forecast forecast;
  forecast.epoch = data::walk_epoch(order_facts(job, assembly), {.global_batch = plan.batch.global_batch,
                                                                 .micro_batch = plan.batch.micro_batch,
                                                                 .micro_batches = plan.batch.micro_batches,
                                                                 .world_size = assembly.place.groups.world_size()});
  if (assembly.datasets.val) forecast.evaluations = times_of(plan.eval, plan);
  if (forecast.evaluations && job.spec().eval.at_start) ++*forecast.evaluations;
  forecast.saves = times_of(plan.save, plan);
  forecast.saves_more = saves_between(job.spec(), assembly);
  forecast.first_lr = assembly.updates.schedule->lr(0);
  if (!plan.is_time_limited()) forecast.last_lr = assembly.updates.schedule->lr(plan.total_steps - 1);
  forecast.shards = forecast_shards(job, assembly);
  forecast.checkpoint = forecast_checkpoint(job, assembly, forecast.shards, forecast.saves);

  auto& memory = forecast.memory;
  memory.fixed = fixed_memory(assembly.built, assembly.updates);
  memory.fixed.optimizer_state = forecast.shards.most_state;
  if (assembly.built.arena->keeps_owned_gradients_only()) memory.fixed.gradients = forecast.shards.most_owned;
  memory.micro_batch = forecast.epoch.most_rows;
  forecast.host_data =
      batch_bytes(*assembly.datasets.train, memory.micro_batch) * batches_ahead(job.spec(), plan.batch);
  memory.limit = device_bytes;
  const comm::Traffic before = traffic;
  const TrialStep one = take_trial_step(job, assembly, 1);
  forecast.first_loss = one.loss;
  forecast.wires = forecast_wires(assembly, traffic - before);
  memory.activations = measure_activations(job, assembly, one, memory.micro_batch);
  if (job.spec().train.searches_micro_batch()) memory.micro_batch = largest_that_fits(memory);
  return forecast;
}

}  // namespace gputrain::app
