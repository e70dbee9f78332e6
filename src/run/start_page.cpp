#include "gputrain/run/start_page.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/job/plugins.hpp"
#include "gputrain/models/packed_layers.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/run/ineffective_settings.hpp"
#include "gputrain/setup/fixed_memory.hpp"
#include "gputrain/setup/training_loop.hpp"
#include "gputrain/setup/versions.hpp"
#include "gputrain/train/step.hpp"

namespace gputrain::app {
namespace {

using monitor::compact;
using monitor::significant;

std::string launcher_text(const launch::Launch& launch) {
  const auto& at = launch.rendezvous;
  return "by " + launch.launcher + ", met at " + at.master_address + ":" + std::to_string(at.master_port);
}

/// Returns "2 hosts, 4 ranks x ", with the ranks of each host if they differ.
std::string ranks_text(const std::vector<std::string>& hosts) {
  std::map<std::string, int64_t> ranks;
  for (const auto& host : hosts) ++ranks[host];
  std::string text = counted(static_cast<int64_t>(ranks.size()), "host");
  const auto differs = [&](const auto& entry) { return entry.second != ranks.begin()->second; };
  if (std::ranges::any_of(ranks, differs)) {
    std::string each;
    for (const auto& [host, count] : ranks) each += (each.empty() ? "" : " ") + host + ":" + std::to_string(count);
    text += " (" + each + ")";
  }
  return text + ", " + counted(static_cast<int64_t>(hosts.size()), "rank") + " x ";
}

std::string hosts_text(const RankContext& context) {
  const auto facts = device::facts_of(context.device);
  const auto& groups = context.groups;
  std::string text;
  if (!groups.alone()) text = ranks_text(groups.hosts());
  text += facts.name + " (" + monitor::bytes(facts.total_bytes) + ")";
  if (context.device.is_cpu())
    text += "  " + counted(context.threads.count, "thread") + " (" + context.threads.reason + ")";
  if (!facts.software.empty()) text += "  " + facts.software;
  if (!groups.alone())
    text += "  " + torch_version() + "  " + groups.description() + "  " + launcher_text(context.launch);
  return text;
}

std::string model_text(const JobSpec& spec, const TrainingSetup& setup) {
  std::string from = spec.model.pretrained ? "from " + *spec.model.pretrained : "from scratch";
  const auto& [classes, missing_parts, sums_colours] = setup.built.not_loaded;
  if (classes > 0) from += " without its last layer, which has " + counted(classes, "class");
  for (const std::string& part : missing_parts) from += (&part == missing_parts.data() ? ", new: " : ", ") + part;
  if (sums_colours) from += ", its first layer summed over colours for grey images";
  const auto& built = setup.built;
  std::string count = compact(static_cast<double>(built.parameter_count)) + " params  ";
  if (built.trainable_count < built.parameter_count)
    count = "trainable " + compact(static_cast<double>(built.trainable_count)) + " of " + count;
  if (const auto& quantize = spec.model.quantize) {
    int64_t weights = 0;
    for (const auto& [name, stood_for] : models::weights_of_packed(*built.model)) weights += stood_for;
    count += compact(static_cast<double>(weights)) + " in " + quantize->type.name + "  ";
  }
  return spec.model.architecture.name + " " + count + spec.precision +
         (spec.optimizer.has_narrow_master()                            ? ", no fp32 weights: rounded stochastically"
          : setup.context.policy.compute != setup.context.policy.master ? ", fp32 master weights"
                                                                        : "") +
         "  " + from + ", seed " + std::to_string(spec.seed);
}

std::string data_text(const JobDatasets& datasets) {
  std::string text = "train " + datasets.train->describe();
  if (datasets.val) text += "  val " + datasets.val->describe();
  return text;
}

std::string batch_text(const JobSpec& spec, const TrainingSetup& setup) {
  const auto& batch = setup.plan.batch;
  const int64_t sequence = setup.datasets.tokens_per_sample();
  const comm::Mesh& mesh = setup.context.groups.mesh();
  const int world = mesh.samples();
  std::string text = sequence > 0 ? counted(setup.plan.tokens_per_step, "token") + "/step"
                                  : counted(batch.global_batch, "sample") + "/step";
  const bool is_open = spec.train.searches_micro_batch();
  text += " = " + (is_open ? "auto" : grouped(batch.micro_batch)) + " micro";
  if (sequence > 0) text += " x " + grouped(sequence) + " seq";
  const int together = mesh.context * mesh.tensor * mesh.pipeline;
  text += " x " + counted(world, together > 1 ? "group" : "rank");
  if (together > 1) text += " of " + counted(together, "rank");
  text += " x " + (is_open ? "as many" : grouped(batch.accumulation)) + " accumulation";
  if (batch.micro_batch * world * batch.accumulation != batch.global_batch) text += " (at most)";
  if (const int64_t samples = setup.datasets.train->size(); samples < batch.global_batch)
    text += ", but an epoch has only " + counted(samples, "sample") + ": each step takes the whole epoch";
  const double lr = spec.optimizer.peak_lr(batch.global_batch);
  text += "  " + setup.optimizer_stack.optimizer->describe() + " lr " + significant(lr);
  if (const auto& base = spec.optimizer.lr_base_batch_size; base && *base != batch.global_batch) {
    text += " (" + significant(spec.optimizer.lr) + " x " + grouped(batch.global_batch) + " / " + grouped(*base) + ")";
  }
  if (setup.built.owners.empty()) return text;
  const bool shares_gradients = setup.built.arena->keeps_owned_gradients_only();
  const bool shares_values = setup.built.arena->keeps_owned_values_only();
  return text +
         (shares_values      ? "  its state, gradients and weights"
          : shares_gradients ? "  its state and the gradients"
                             : "  its state") +
         " shared out over the ranks";
}

/// Returns how the model is cut, and how long the stages wait for each other.
std::string stages_text(const TrainingSetup& setup) {
  constexpr int64_t kMostNamed = 4;
  const auto& pipeline = *setup.built.pipeline;
  const parallel::PipelineShape shape = pipeline.shape(setup.plan.batch.accumulation);
  const int64_t parts = shape.stages * shape.parts;
  const auto units = setup.built.model->units();
  std::string text;
  int64_t fewest = std::ssize(units), most = 0;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = pipeline.begin_of(part), end = pipeline.end_of(part);
    fewest = std::min(fewest, end - begin);
    most = std::max(most, end - begin);
    if (parts > kMostNamed) continue;
    text += part > 0 ? " | " : "";
    text += units[static_cast<size_t>(begin)].name;
    if (end - begin > 1) text += ".." + units[static_cast<size_t>(end - 1)].name;
  }
  if (parts > kMostNamed) {
    text = counted(parts, "part") + " of " + (fewest == most ? "" : std::to_string(fewest) + " to ") +
           counted(most, "unit");
  }
  const double waiting = parallel::bubble_of(parallel::timed_passes(shape, pipeline.costs()));
  return text + fmt::format("  {} a step: stages wait {:.0f} % of it on average",
                            counted(shape.micro_batches, "micro-batch"), 100 * waiting);
}

/// Returns the chosen micro-batch, or the sizes that a run will try.
std::string micro_batch_text(const JobSpec& spec, const TrainingSetup& setup) {
  if (!spec.train.searches_micro_batch()) return setup.micro_batch.text();
  std::string sizes;
  for (const int64_t size : train::micro_batches_to_try(setup.plan.batch.micro_batch)) sizes += " " + grouped(size);
  return "auto: a run tries" + sizes + " samples per rank before its first step and takes the fastest that fits";
}

std::string graph_text(const JobSpec& spec, const TrainingSetup& setup) {
  const std::string obstacle = obstacle_to_capture(spec, setup);
  return obstacle.empty()
             ? "a step is one CUDA graph from the " + std::to_string(train::Step::kPassesBeforeCapture + 1) + "th on"
             : "none: " + obstacle;
}

std::string cadence_text(const train::Cadence& cadence) {
  if (cadence.steps > 0) return "every " + grouped(cadence.steps);
  if (cadence.seconds > 0) return "every " + monitor::duration(cadence.seconds);
  return "at the end";
}

std::string plan_text(const TrainingSetup& setup, const std::string& saves) {
  const auto& plan = setup.plan;
  std::string text;
  if (plan.is_time_limited()) {
    text = monitor::duration(plan.max_seconds) + " of training";
  } else {
    const double epochs = plan.epochs_in(plan.total_steps);
    text = counted(plan.total_steps, "step") + " = " + significant(epochs) + (epochs == 1 ? " epoch" : " epochs");
    if (plan.max_seconds > 0) text += ", or " + monitor::duration(plan.max_seconds) + " of training if that is less";
  }
  text += "  " + setup.optimizer_stack.schedule->describe();
  if (setup.datasets.val) text += "  eval " + cadence_text(plan.eval);
  text += "  save " + (plan.save.is_auto ? saves : cadence_text(plan.save));
  if (plan.save.also_steps > 0) text += ", and every " + grouped(plan.save.also_steps) + " for good";
  return text + "  log " + cadence_text(plan.log);
}

/// Returns the memory that stays allocated for the whole run. The activations are unknown before the first step.
std::string memory_text(const JobSpec& spec, const TrainingSetup& setup) {
  const FixedMemory fixed = fixed_memory(setup.built, setup.optimizer_stack);
  const int64_t all = device::facts_of(setup.context.device).total_bytes;
  const int here = setup.context.device.is_cpu() ? setup.context.launch.rendezvous.local_world_size : 1;
  return monitor::bytes(fixed.total()) + " of " + monitor::bytes(all) +
         (here > 1 ? " for " + counted(here, "rank") : "") + ": " + fixed.text() + "  then activations" +
         (spec.train.offload.activations ? ", with inputs of blocks on the host" : "");
}

}  // namespace

std::string mesh_text(const comm::Mesh& mesh, const std::vector<std::string>& hosts) {
  const auto place = [&](int size) -> std::string {
    if (hosts.empty()) return "";
    for (int rank = 0; rank < mesh.ranks; ++rank) {
      if (hosts[static_cast<size_t>(rank)] != hosts[static_cast<size_t>(rank - rank % size)]) return " across hosts";
    }
    return " within hosts";
  };
  std::string text;
  const auto add = [&](const std::string& more, int size) { text += (text.empty() ? "" : "  ") + more + place(size); };
  if (mesh.pipeline > 1) {
    const std::string parts = mesh.virtual_stages > 1 ? " of " + counted(mesh.virtual_stages, "part") + " each" : "";
    add(counted(mesh.pipeline, "stage") + parts, mesh.stage_ranks());
  }
  const int replica = mesh.shards() * mesh.tensor;
  if (mesh.replicas > 1) add(counted(mesh.replicas, "replica") + " of " + counted(mesh.shards(), "shard"), replica);
  if (mesh.context > 1) add(std::to_string(mesh.context) + " parts of each text", mesh.context * mesh.tensor);
  if (mesh.tensor > 1) add(counted(mesh.tensor, "rank") + " share the layers", mesh.tensor);
  return text;
}

void print_start_page(monitor::Console& console, const Job& job, const TrainingSetup& setup, const StartTexts& texts) {
  console.line("gputrain",
               version() + "  run " + job.run_id + "  resolved " + (job.output_dir / "job.resolved.yaml").string());
  for (const auto& [name, place] : texts.trackers) console.line(name, place);
  console.line("hosts", texts.hosts.empty() ? hosts_text(setup.context) : texts.hosts);
  if (!plugins().empty()) console.line("plugins", plugins_text(true));
  console.line("model", model_text(job.spec(), setup));
  if (setup.built.adapter) console.line("adapter", setup.built.adapter->describe());
  console.line("data", data_text(setup.datasets));
  console.line("batch", batch_text(job.spec(), setup));
  if (!texts.rate.empty()) console.line("rate", texts.rate);
  const bool is_chosen = job.spec().train.searches_micro_batch() || setup.micro_batch.micro_batch > 0;
  if (is_chosen) console.line("micro", micro_batch_text(job.spec(), setup));
  const auto& groups = setup.context.groups;
  if (const comm::Mesh& mesh = groups.mesh(); mesh.replicas > 1 || mesh.has_collective_passes())
    console.line("mesh", mesh_text(mesh, groups.is_simulated() ? std::vector<std::string>() : groups.hosts()));
  if (setup.built.pipeline) console.line("stages", stages_text(setup));
  if (!groups.alone())
    console.line("reduce", describe(setup.gradient_sync, *setup.built.arena, traffic_of_step(setup)));
  if (!setup.context.device.is_cpu()) console.line("graph", graph_text(job.spec(), setup));
  console.line("plan", plan_text(setup, texts.saves));
  console.line("memory", texts.memory.empty() ? memory_text(job.spec(), setup) : texts.memory);
  if (!texts.cost.empty()) console.line("cost", texts.cost);
  console.line("resume", texts.resume);
  if (!texts.watch.empty()) console.line("watch", texts.watch);
  for (const std::string& text : ineffective_settings(job, setup)) log::warning(text);
}

}  // namespace gputrain::app
