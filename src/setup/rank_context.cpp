// Setup of a process for a job: device, threads, process groups.
#include <chrono>
#include <memory>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/gpu_allocator.hpp"
#include "gputrain/device/host_allocator.hpp"
#include "gputrain/device/numerics.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/job/plugins.hpp"
#include "gputrain/ops/kernel_choices.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/setup/versions.hpp"
#include "gputrain/train/preemption.hpp"

namespace gputrain::app {
namespace {

/// Warns because older GPUs emulate these formats silently.
void warn_of_missing_units(const device::DeviceFacts& gpu, ops::Precision precision) {
  constexpr int kFirstWithBoth = 80;
  if (gpu.generation >= kFirstWithBoth) return;
  if (precision == ops::Precision::bf16)
    log::warning(gpu.name + " has no bf16 hardware: steps will be slow; try precision: fp16");
  if (precision == ops::Precision::tf32)
    log::warning(gpu.name + " has no tf32 and uses fp32 instead; try precision: fp16");
}

/// Sets up device, threads and numerics. `device` is a kind of device, of which the rank takes its own.
void set_up(RankContext& context, const JobStart& spec, const std::string& device, int ranks_here) {
  device::install_host_allocator(ranks_here);
  context.threads = device::plan_cpu_threads(ranks_here, context.launch.allotted_cpus);
  device::set_cpu_threads(context.threads);
  context.device = device::choose_device(device, context.launch.rendezvous.local_rank);
  const auto precision = ops::precision_from_name(spec.precision);
  context.policy = ops::policy_of(precision);
  if (context.device.is_cuda()) warn_of_missing_units(device::facts_of(context.device), precision);
  device::apply({.tf32 = precision == ops::Precision::tf32, .deterministic = spec.deterministic}, context.device);
  device::seed_generators(context.device, static_cast<uint64_t>(spec.seed) + static_cast<uint64_t>(context.rank()));
}

/// Returns "1, 2 or 4".
std::string degrees_text(const std::vector<int64_t>& degrees) {
  std::string text;
  for (size_t i = 0; i < degrees.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < degrees.size() ? ", " : " or ") + std::to_string(degrees[i]);
  }
  return text;
}

}  // namespace

/// Arranges nothing on one rank.
comm::Mesh mesh_of(const Job& job, int ranks) {
  comm::Mesh mesh{.ranks = ranks};
  if (ranks == 1) return mesh;
  const auto& spec = job.spec().parallel;
  const int64_t replicas = spec.replicate, context = spec.context, tensor = spec.tensor, stages = spec.pipeline;
  std::string of_stage, in_cells;  // text for ranks of a pipeline, or for ranks that share layers
  const auto refuse = [&](const char* key, const std::string& what, const auto& is_good) {
    std::vector<int64_t> others;
    for (int64_t one = 1; one <= ranks; ++one)
      if (is_good(one)) others.push_back(one);
    throw job.loaded.error(key, counted(ranks, "rank") + of_stage + in_cells + " cannot be " + what,
                           degrees_text(others) + ", or another number of ranks");
  };
  const auto divides = [&](int64_t one) { return ranks % one == 0; };
  if (!divides(stages)) refuse("parallel.pipeline", counted(stages, "stage") + " of as many ranks each", divides);
  if (stages > 1) {
    of_stage = " of a stage";
    ranks /= static_cast<int>(stages);
  }
  if (!divides(tensor))
    refuse("parallel.tensor", "groups of " + std::to_string(tensor) + " that share layers", divides);
  if (tensor > 1) in_cells = " in cells of " + std::to_string(tensor);
  const int64_t cells = ranks / tensor;
  const auto has_shards = [&](int64_t one) { return one == 1 || (cells % one == 0 && one < cells); };
  if (!has_shards(replicas)) {
    refuse("parallel.replicate", counted(replicas, "replica") + " of two or more shards each", has_shards);
  }
  const auto is_shared = [&](int64_t one) { return cells / replicas % one == 0; };
  if (!is_shared(context)) {
    refuse("parallel.context",
           (replicas > 1 ? counted(replicas, "replica") + " of " : "") + "groups of " + std::to_string(context) +
               " that share texts",
           is_shared);
  }
  mesh.replicas = static_cast<int>(replicas);
  mesh.context = static_cast<int>(context);
  mesh.tensor = static_cast<int>(tensor);
  mesh.pipeline = static_cast<int>(stages);
  if (stages > 1) mesh.virtual_stages = static_cast<int>(spec.virtual_stages);
  return mesh;
}

namespace {

/// Returns what the ranks must have in common.
std::string purpose_of(const Job& job) {
  const std::string plugins = plugins_text(false);
  return "run " + job.run_id + (plugins.empty() ? "" : " with the plug-ins " + plugins);
}

std::string program_text() { return "gputrain " + version() + " with " + torch_version(); }

}  // namespace

RankContext create_rank_context(const Job& job) {
  const JobSpec& spec = job.spec();
  const auto deadline = std::chrono::milliseconds(static_cast<int64_t>(spec.parallel.timeout.seconds * 1000));
  comm::Mesh mesh;
  try {
    mesh = mesh_of(job, launch::read_environment().rendezvous.world_size);
  } catch (const Error& mistake) {
    fail_before_rendezvous(mistake);
  }
  RankContext context = create_rank_context(spec, {.deadline = deadline, .purpose = purpose_of(job)});
  context.groups.arrange(mesh);
  if (mesh.tensor > 1) ops::choose_kernels_without_clock();
  if (context.device.is_cuda()) ops::limit_kernel_trials(spec.train.kernel_trials.seconds);
  return context;
}

RankContext create_rank_context(const JobStart& spec, const Meeting& meeting) {
  RankContext context;
  context.launch = launch::read_environment();
  const auto& rendezvous = context.launch.rendezvous;
  if (!context.launch.remark.empty()) log::warning(context.launch.remark);
  try {
    if (spec.alloc_conf) device::set_gpu_allocator(*spec.alloc_conf);
    set_up(context, spec, spec.device, rendezvous.local_world_size);
  } catch (const Error& mistake) {
    fail_before_rendezvous(mistake);
  }
  if (spec.alloc_conf && context.device.is_cpu() && rendezvous.rank == 0)
    log::warning("alloc_conf has no effect: it configures GPU memory, and there is no GPU here");
  if (rendezvous.world_size > 1) {
    log::set_stderr_enabled(rendezvous.rank == 0);
    context.groups = comm::ProcessGroups(rendezvous, {.device = context.device,
                                                      .gpu = device::facts_of(context.device).uuid,
                                                      .deadline = meeting.deadline,
                                                      .on_waiting = log::own_warning,
                                                      .program = program_text(),
                                                      .run = meeting.purpose});
  }
  return context;
}

void fail_before_rendezvous(const Error& mistake) {
  bool is_reported = false;
  try {
    is_reported = comm::is_reported_by_rank_zero(launch::read_environment().rendezvous, program_text(), mistake.what());
  } catch (const Error&) {  // half-set variables are a second error: report the first one
  }
  if (is_reported) throw ReportedElsewhere(mistake);
  throw;
}

void fail(RankContext& context, const std::exception& failure) {
  train::note_failure();
  context.groups.fail(failure);
}

RankContext simulate_rank(const Job& job, const comm::Rendezvous& at,
                          std::shared_ptr<comm::CollectiveTraffic> traffic) {
  const comm::Mesh mesh = mesh_of(job, at.world_size);
  RankContext context;
  context.launch = {.launcher = "dry run", .rendezvous = at, .allotted_cpus = 0, .remark = {}};
  set_up(context, job.spec(), "cpu", 1);
  context.groups = comm::ProcessGroups::simulated(at, std::move(traffic));
  context.groups.arrange(mesh);
  return context;
}

}  // namespace gputrain::app
