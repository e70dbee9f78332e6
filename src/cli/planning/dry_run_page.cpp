#include "dry_run_page.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/numbers.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {
namespace {

using monitor::bytes;
using monitor::significant;

std::string spread_text(const data::EpochShares::Spread& spread) {
  return (spread.fewest == spread.most ? "" : grouped(spread.fewest) + " to ") + counted(spread.most, "sample");
}

std::string order_text(const TrainingSetup& setup, const data::EpochShares& epoch) {
  const int64_t samples = setup.datasets.train->size(), batch = setup.plan.batch.global_batch;
  std::string text = spread_text(epoch.in_step) + " per rank and step, " + spread_text(epoch.in_epoch) + " per epoch";
  const std::string times = epoch.repeats == 1 ? "once" : counted(epoch.repeats, "time");
  text += epoch.each_looked_up ? "; every one of " + grouped(ceil_divide(epoch.used, epoch.repeats)) + " " + times +
                                     ", looked up for all ranks"
                               : "; " + grouped(epoch.used) + " are too many to look up each";
  if (epoch.used < samples) text += "; " + grouped(samples - epoch.used) + " left out (data.last: drop)";
  if (epoch.in_last_step < batch) {
    text += fmt::format("; the last step has {} of {}", grouped(epoch.in_last_step), grouped(batch));
    if (epoch.idle_in_last_step > 0) text += ", " + counted(epoch.idle_in_last_step, "rank") + " none";
  }
  return text;
}

std::string times_text(const Times& times) { return times ? grouped(*times) : std::string("auto"); }

std::string events_text(const TrainingSetup& setup, const DryRunEstimate& estimate) {
  std::string text;
  if (setup.datasets.val) text += "evaluations " + times_text(estimate.evaluations) + "  ";
  text += "saves " + times_text(estimate.saves) + (estimate.saves_more ? ", and new bests" : "") + "  lr " +
          significant(estimate.first_lr);
  return setup.plan.is_time_limited() ? text : text + " to " + significant(estimate.last_lr);
}

std::string communication_text(const CommunicationEstimate& communication) {
  std::string kinds;
  const auto add = [&](const comm::CollectiveTraffic::Kind& kind, const char* name) {
    if (kind.calls == 0) return;
    kinds += fmt::format("{}{} {} of {}", kinds.empty() ? "" : " + ", grouped(kind.calls), name, bytes(kind.bytes));
  };
  if (const auto& traffic = communication.traffic) {
    add(traffic->all_reduce, "all-reduce");
    add(traffic->reduce, "reduce");
    add(traffic->reduce_scatter, "reduce-scatter");
    add(traffic->all_gather, "all-gather");
    add(traffic->broadcast, "broadcast");
    kinds += "; ";
  }
  return fmt::format("{} of at most {}  a step: {}each rank sends {} (ring)", counted(communication.buckets, "bucket"),
                     bytes(communication.largest_bucket), kinds, bytes(communication.bytes_per_rank));
}

std::string shards_text(const TrainingSetup& setup, const ShardEstimate& shards) {
  std::string text = fmt::format("{} ranks own {} to {} of the parameters", grouped(std::ssize(setup.built.owners)),
                                 bytes(shards.fewest_owned), bytes(shards.most_owned));
  if (shards.owning_nothing > 0) text += "; " + grouped(shards.owning_nothing) + " own nothing";
  return text + "; optimizer state at most " + bytes(shards.most_state + shards.most_on_host);
}

std::string checkpoint_text(const CheckpointEstimate& checkpoint) {
  std::string text = fmt::format("{} in {}, the largest {}; at most {} at once are {}", bytes(checkpoint.bytes),
                                 counted(checkpoint.files, "file"), bytes(checkpoint.largest_file),
                                 grouped(checkpoint.most_at_once), bytes(checkpoint.most_at_once * checkpoint.bytes));
  if (checkpoint.frozen_bytes > 0) text += ", and once " + bytes(checkpoint.frozen_bytes) + " of frozen weights,";
  if (checkpoint.free_bytes) text += " of " + bytes(*checkpoint.free_bytes) + " free here";
  return text + (checkpoint.fits() ? "" : ": TOO MUCH");
}

std::string host_text(const DryRunEstimate& estimate, int ranks_per_host) {
  std::string text = bytes(estimate.host_data) + " per rank for data";
  if (ranks_per_host > 1) text += ", " + bytes(estimate.host_data * ranks_per_host) + " per host";
  if (const int64_t offloaded = estimate.memory.on_host(); offloaded > 0)
    text += "; " + bytes(offloaded) + " per rank for train.offload";
  if (estimate.checkpoint.copy_bytes > 0)
    text += "; " + bytes(estimate.checkpoint.copy_bytes) + " on rank 0 while it saves";
  return text;
}

nlohmann::json to_json(const data::EpochShares::Spread& spread) {
  return {{"fewest", spread.fewest}, {"most", spread.most}};
}
nlohmann::json to_json(const comm::CollectiveTraffic::Kind& kind) {
  return {{"calls", kind.calls}, {"bytes", kind.bytes}};
}
nlohmann::json to_json(const Times& times) { return times ? nlohmann::json(*times) : nlohmann::json(); }

nlohmann::json data_json(const TrainingSetup& setup, const data::EpochShares& epoch) {
  return {{"samples", setup.datasets.train->size()},
          {"used_per_epoch", epoch.used},
          {"steps_per_epoch", epoch.steps},
          {"samples_per_rank_and_step", to_json(epoch.in_step)},
          {"samples_per_rank", to_json(epoch.in_epoch)},
          {"last_step_samples", epoch.in_last_step},
          {"ranks_idle_in_last_step", epoch.idle_in_last_step},
          {"each_looked_up", epoch.each_looked_up}};
}

nlohmann::json communication_json(const CommunicationEstimate& communication) {
  nlohmann::json json{{"buckets", communication.buckets},
                      {"largest_bucket_bytes", communication.largest_bucket},
                      {"sent_bytes_per_rank", communication.bytes_per_rank}};
  if (const auto& traffic = communication.traffic) {
    json["all_reduce"] = to_json(traffic->all_reduce);
    json["reduce"] = to_json(traffic->reduce);
    json["broadcast"] = to_json(traffic->broadcast);
    json["all_gather"] = to_json(traffic->all_gather);
    json["reduce_scatter"] = to_json(traffic->reduce_scatter);
  }
  return json;
}

nlohmann::json memory_json(const Memory& memory, int64_t host_data) {
  const FixedMemory& fixed = memory.fixed;
  nlohmann::json json{{"weights", fixed.parameters},
                      {"borrowed_weights", fixed.borrowed},
                      {"frozen_weights", fixed.frozen},
                      {"working_copy", fixed.working_copy},
                      {"buffers", fixed.buffers},
                      {"gradients", fixed.gradients},
                      {"optimizer", fixed.optimizer_state},
                      {"activations", memory.activations.bytes(memory.micro_batch)},
                      {"bytes_per_sample", memory.activations.bytes_per_sample},
                      {"micro_batch", memory.micro_batch},
                      {"total", memory.total()},
                      {"optimizer_on_host", fixed.state_on_host},
                      {"activations_on_host", memory.offloaded.bytes(memory.micro_batch)},
                      {"host_data", host_data}};
  const char* known = memory.activations.is_predicted ? "predicted" : "measured";
  json[std::string(known) + "_samples"] = memory.activations.measured_samples;
  json[std::string(known) + "_bytes"] = memory.activations.measured_bytes;
  if (memory.limit > 0) json["limit"] = memory.limit, json["fits"] = memory.fits();
  return json;
}

nlohmann::json stages_json(const parallel::Pipeline& pipeline, int64_t micro_batches) {
  const parallel::PipelineShape shape = pipeline.shape(micro_batches);
  nlohmann::json first_units;
  for (int64_t part = 0; part < shape.stages * shape.parts; ++part) first_units.push_back(pipeline.begin_of(part));
  return {{"stages", shape.stages},
          {"first_unit_of_parts", first_units},
          {"waiting_share", parallel::bubble_of(parallel::timed_passes(shape, pipeline.costs()))}};
}

}  // namespace

std::string memory_text(const Memory& memory) {
  std::string text = "predicted " + bytes(memory.total());
  if (memory.limit > 0) text += " of " + bytes(memory.limit);
  text += ": " + memory.fixed.text() + "  activations " + bytes(memory.activations.bytes(memory.micro_batch)) +
          " for " + grouped(memory.micro_batch);
  if (memory.activations.is_predicted) {
    text += " (scaled from smaller models)";
  } else if (memory.micro_batch > 1) {
    text += fmt::format(" ({} each, measured with {})", bytes(memory.activations.bytes_per_sample),
                        grouped(memory.activations.measured_samples));
  }
  if (memory.limit == 0) return text;
  return text + (memory.fits() ? "  fits" : "  DOES NOT FIT");
}

void print_dry_run_page(monitor::Console& console, const Job& job, const TrainingSetup& setup,
                        const DryRunEstimate& estimate, int ranks_per_host) {
  if (const auto& later = estimate.memory_of_later_stages; !later.empty()) {
    const auto most = std::ranges::max_element(later, {}, [](const Memory& memory) { return memory.total(); });
    console.line("stage " + std::to_string(most - later.begin() + 1), memory_text(*most));
  }
  if (const auto& pipeline = setup.built.pipeline) {
    const auto passes = parallel::timed_passes(pipeline->shape(setup.plan.batch.accumulation), pipeline->costs());
    console.line("pipeline", fmt::format("stages wait {:.1f} % of a step", 100 * parallel::bubble_of(passes)));
  }
  console.line("order", order_text(setup, estimate.epoch));
  console.line("events", events_text(setup, estimate));
  if (estimate.communication.buckets > 0) console.line("wires", communication_text(estimate.communication));
  if (!setup.built.owners.empty()) console.line("shards", shards_text(setup, estimate.shards));
  console.line("ckpt", checkpoint_text(estimate.checkpoint) + "  " + job.output_dir.string());
  console.line("host", host_text(estimate, ranks_per_host));
}

nlohmann::json to_json(const Job& job, const TrainingSetup& setup, const DryRunHosts& hosts,
                       const DryRunEstimate& estimate) {
  const auto& plan = setup.plan;
  const auto& checkpoint = estimate.checkpoint;
  const auto& shards = estimate.shards;
  nlohmann::json json{{"schema", 1}, {"run_id", job.run_id}, {"world_size", setup.context.groups.world_size()}};
  if (hosts.hosts > 0) json["hosts"] = hosts.hosts, json["ranks_per_host"] = hosts.ranks_per_host;
  json["parameters"] = setup.built.parameter_count;
  json["trainable_parameters"] = setup.built.trainable_count;
  json["batch"] = {{"global", plan.batch.global_batch},
                   {"micro", plan.batch.micro_batch},
                   {"accumulation", plan.batch.accumulation},
                   {"tokens_per_step", plan.tokens_per_step}};
  json["data"] = data_json(setup, estimate.epoch);
  json["plan"] = {{"steps", plan.is_time_limited() ? nlohmann::json() : nlohmann::json(plan.total_steps)},
                  {"evaluations", to_json(estimate.evaluations)},
                  {"saves", to_json(estimate.saves)},
                  {"saves_new_bests_besides", estimate.saves_more},
                  {"first_lr", estimate.first_lr},
                  {"last_lr", estimate.last_lr}};
  json["shards"] = {{"shard", job.spec().parallel.shard},
                    {"most_owned_bytes", shards.most_owned},
                    {"fewest_owned_bytes", shards.fewest_owned},
                    {"ranks_owning_nothing", shards.owning_nothing}};
  json["wires"] = communication_json(estimate.communication);
  json["checkpoint"] = {{"files", checkpoint.files},
                        {"bytes", checkpoint.bytes},
                        {"largest_file_bytes", checkpoint.largest_file},
                        {"frozen_bytes", checkpoint.frozen_bytes},
                        {"most_at_once", checkpoint.most_at_once},
                        {"free_bytes", to_json(checkpoint.free_bytes)},
                        {"host_copy_bytes", checkpoint.copy_bytes},
                        {"fits", checkpoint.fits()}};
  json["memory"] = memory_json(estimate.memory, estimate.host_data);
  for (const Memory& memory : estimate.memory_of_later_stages)
    json["memory_of_later_stages"].push_back(memory_json(memory, estimate.host_data));
  if (const auto& pipeline = setup.built.pipeline) json["stages"] = stages_json(*pipeline, plan.batch.accumulation);
  const bool has_loss = estimate.first_loss && !setup.built.pipeline;
  json["first_loss"] = has_loss ? nlohmann::json(*estimate.first_loss) : nlohmann::json();
  return json;
}

}  // namespace gputrain::app
