// A dry run on this machine: everything except training.
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/data/preprocess.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/estimate/memory.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/resume/checkpoint_room.hpp"
#include "gputrain/run/preparation.hpp"
#include "gputrain/run/start_page.hpp"

namespace gputrain::app {
namespace {

/// Computes the loss of a batch. Every rank must call.
double loss_of(TrainingSetup& setup, const Batch& batch) {
  const tasks::Task& task = *setup.datasets.task;
  if (!setup.built.pipeline) return task.loss(*setup.built.model, batch, {}).sum.item<double>();
  const at::NoGradGuard no_grad;
  setup.built.pipeline->share_ends();
  at::Tensor sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(setup.context.device));
  if (const auto last = setup.built.pipeline->pass(task.part_of(batch)))
    sum = task.loss(*setup.built.model, *last, {}).sum;
  setup.context.groups.stages().broadcast(sum, setup.built.pipeline->stages() - 1, "the loss");
  return sum.item<double>();
}

int compute_one_loss(const Job& job, TrainingSetup& setup, monitor::Console& console, const std::string& resume) {
  print_start_page(console, job, setup, {.saves = "auto", .resume = resume});
  auto options = loader_options(job.spec(), *setup.datasets.train, setup.context, setup.plan.batch);
  if (job.spec().train.searches_micro_batch()) options.partition.micro_batch = 1;
  options.class_weights = setup.datasets.task->class_weights();
  data::Loader loader(setup.datasets.train, options);
  const auto step = loader.next_step();
  const auto& batch = step.micro_batches.front();
  const data::Preprocess preprocess(*setup.datasets.train,
                                    input_format(job.spec(), *setup.datasets.train, setup.context));
  const double mean = loss_of(setup, preprocess(batch)) / train::divisor_of_loss(step.loss_weights.front());
  for (const auto& shortage : disks_too_small(job, setup)) {
    if (shortage.for_one) throw Error(shortage.error);
    log::warning(shortage.error.what());
  }
  // A task that compares with the model before training has asked it nothing here.
  const bool is_known = setup.datasets.task->reference_numbers() == 0;
  console.line("dry run", "all checks passed; " + (is_known ? "first loss " + monitor::significant(mean) + "; " : "") +
                              "nothing was written");
  return 0;
}

}  // namespace

void check_memory(const Job& job, const comm::Rendezvous& at, const std::function<JobDatasets()>& open) {
  const int ranks = at.local_world_size;
  const TrainingSetup sizes(job, simulate_rank(job, at, std::make_shared<comm::CollectiveTraffic>()), open,
                            /*kept_global_batch=*/0, Weights::sizes);
  const Memory memory{.fixed = fixed_memory(sizes.built, sizes.optimizer_stack),
                      .activations = {},
                      .limit = device::host_memory_bytes() / ranks};
  if (!memory.fits())
    throw Error(ExitCode::environment,
                {.what = "a rank holds " + monitor::bytes(memory.total()) +
                         " before its first step, and this machine " + "or its container has " +
                         monitor::bytes(device::host_memory_bytes()) + " for " + counted(ranks, "rank"),
                 .hint = memory_remedies(job, sizes, memory)});
}

int try_out(const Job& job, TrainingSetup& setup, monitor::Console& console, const std::string& resume) {
  try {
    return compute_one_loss(job, setup, console, resume);
  } catch (const std::exception& failure) {
    if (const auto shortage = out_of_memory_error(failure, job, &setup, "in the dry run")) throw Error(*shortage);
    throw;
  }
}

}  // namespace gputrain::app
