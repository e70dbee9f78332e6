// Command `gputrain bench one`: measures one combination. `bench train` starts one such process for each combination.
#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/device/out_of_memory.hpp"
#include "gputrain/device/peak_rates.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/inspect/bench.hpp"
#include "gputrain/job/job_environment.hpp"
#include "gputrain/setup/timed_steps.hpp"
#include "gputrain/setup/versions.hpp"

namespace gputrain::app {
namespace {

void refuse_what_cannot_be_timed(const TrainingSetup& setup) {
  if (!setup.context.groups.alone()) {
    throw Error(ExitCode::usage, {.what = "bench train measures one rank, but a launcher has started several",
                                  .hint = "start it without a launcher"});
  }
  const int64_t step = setup.plan.batch.global_batch, samples = setup.datasets.train->size();
  if (step <= samples) return;
  throw Error(ExitCode::usage, {.what = "a step of " + counted(step, "sample") + " is more than the training data (" +
                                        grouped(samples) + ")",
                                .hint = "--synthetic"});
}

BenchRow measure(const Job& job, TrainingSetup& setup, const Timing& timing) {
  const TimedSteps timed = time_steps(job, setup, timing);
  const int64_t tokens = setup.datasets.tokens_per_sample();
  const at::Device device = setup.context.device;
  BenchRow row{.precision = job.spec().precision,
               .checkpointing = job.spec().train.activation_checkpointing,
               .unit = tokens > 0 ? "tokens" : "samples",
               .micro_batch = timing.batch.micro_batch,
               .accumulation = timing.batch.accumulation,
               .failure = {},
               .seconds = timed.seconds,
               .rates = timed.samples_per_second};
  row.flops_per_second = setup.built.model->flops_per_sample() * timed.median_rate();
  row.peak_flops_per_second = device::peak_rate(device::facts_of(device).name, row.precision).value_or(0);
  for (double& rate : row.rates) rate *= tokens > 0 ? static_cast<double>(tokens) : 1.0;
  row.peak_bytes = device.is_cpu() ? device::peak_resident_bytes() : device::peak_allocated_bytes(device);
  row.first_loss = timed.first_loss;
  row.last_loss = timed.last_loss;
  return row;
}

}  // namespace

int bench_one_command(const BenchRequest& request) {
  const Job job = load_job(request.job);
  take_environment(job.spec().env);
  std::ofstream("/proc/self/oom_score_adj") << 1000;  // if memory runs out, kill this process first
  try {
    TrainingSetup setup(job);
    refuse_what_cannot_be_timed(setup);
    const Timing timing{.batch = setup.plan.batch, .warmup = request.warmup, .steps = request.steps};
    nlohmann::json json = to_json(measure(job, setup, timing));
    const auto facts = device::facts_of(setup.context.device);
    json["machine"] = {{"device", facts.name},
                       {"memory_bytes", facts.total_bytes},
                       {"software", facts.software},
                       {"threads", setup.context.threads.count},
                       {"torch", torch_version()},
                       {"parameters", setup.built.parameter_count},
                       {"data", setup.datasets.train->describe()}};
    std::printf("%s\n", json.dump().c_str());
    return 0;
  } catch (const std::exception& failure) {
    if (!device::shortage_of(failure)) throw;
    throw Error(ExitCode::environment, {.what = "out of memory"});
  }
}

}  // namespace gputrain::app
