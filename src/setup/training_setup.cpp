#include "gputrain/setup/training_setup.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/setup/compatibility.hpp"
#include "gputrain/train/step.hpp"

namespace gputrain::app {
namespace {

/// Returns whether images are in NHWC: tensor cores compute in it, and oneDNN is fastest in it.
bool wants_channels_last(const JobSpec& spec, const data::Dataset& dataset) {
  return dataset.layout().token_count() == 0 && spec.train.channels_last.value.value_or(true);
}

std::unique_ptr<optim::Schedule> schedule_of(const JobSpec& spec, const train::Plan& plan) {
  const auto to_steps = [&](const config::Length& length, const std::string& key) {
    return plan.steps_of_curve(length, "lr_scheduler." + key);
  };
  return optim::make_schedule(spec.lr_scheduler, {.peak_lr = spec.optimizer.peak_lr(plan.batch.global_batch),
                                                  .total_steps = plan.curve_steps(),
                                                  .to_steps = to_steps});
}

optim::AverageRule average_rule_of(const train::TrainSpec& spec, const train::Plan& plan) {
  if (spec.ema) return {.decay = spec.ema->decay, .warms_up = spec.ema->warmup};
  const train::SwaSpec& swa = *spec.swa;
  return {
      .kind = optim::AverageRule::Kind::equal,
      .start = static_cast<double>(std::max<int64_t>(1, plan.steps_of_curve(swa.start, "train.swa.start"))),
      .interval = static_cast<double>(std::max<int64_t>(1, plan.steps_of_curve(swa.interval, "train.swa.interval")))};
}

void check_mirroring(const Job& job, const JobDatasets& datasets) {
  if (!job.spec().eval.hflip || datasets.train->layout().is_image()) return;
  throw job.loaded.error("eval.hflip", "only images have a mirror image", "leave it out");
}

/// Checks that the stages of an interleaved pipeline take as many micro-batches in turn as there are stages.
void check_micro_batches(const Job& job, const train::Plan& plan, const comm::Mesh& mesh) {
  if (mesh.virtual_stages == 1 || plan.batch.accumulation % mesh.pipeline == 0) return;
  throw job.loaded.error(
      "parallel.virtual_stages",
      counted(plan.batch.accumulation, "micro-batch") + " a step is no multiple of " + counted(mesh.pipeline, "stage"),
      "another train.micro_batch_size or train.gradient_accumulation_steps, or 1 virtual stage");
}

}  // namespace

train::Plan plan_run(const JobSpec& spec, const JobDatasets& datasets, const RankContext& context,
                     int64_t kept_global_batch, const train::PlanStart& start) {
  return train::make_plan(spec.train, spec.eval, spec.checkpoint, spec.log,
                          {.dataset_size = datasets.train->size(),
                           .tokens_per_sample = datasets.tokens_per_sample(),
                           .world_size = context.groups.mesh().samples(),
                           .drop_last = spec.data.last == "drop",
                           .kept_global_batch = kept_global_batch,
                           .start = start});
}

data::LoaderOptions loader_options(const JobSpec& spec, const data::Dataset& dataset, const RankContext& context,
                                   const train::BatchPlan& batch) {
  const auto& rendezvous = context.launch.rendezvous;
  const comm::Mesh& mesh = context.groups.mesh();
  const bool is_made_up = spec.data.train.format.name == "synthetic";  // such images are not augmented
  return {.partition = {.global_batch = batch.global_batch,
                        .micro_batch = batch.micro_batch,
                        .rank = mesh.sample_group_of(context.rank()),
                        .world_size = mesh.samples()},
          .seed = static_cast<uint64_t>(spec.seed),
          .repeats = is_made_up || !dataset.layout().is_image() ? 1 : spec.data.image.augment.repeats,
          .mix = is_made_up ? data::MixOptions() : spec.data.image.augment.mix,
          .drop_last = spec.data.last == "drop",
          .num_workers = static_cast<int>(spec.data.num_workers.value.value_or(
              data::automatic_workers(dataset, context.device, device::cpus_of_rank(rendezvous.local_world_size)))),
          .prefetch_batches = static_cast<int>(spec.data.prefetch_factor),
          .max_bad_fraction = spec.data.max_bad_fraction,
          .on_bad_sample =
              [told = std::make_shared<std::set<int64_t>>()](const data::BadSample& bad) {
                if (told->insert(bad.index).second) log::warning("skipped: " + bad.message);  // only in the first epoch
              },
          .timeout_seconds = spec.parallel.timeout.seconds,
          .length_classes = context.device.is_cuda() ? train::Step::kMostGraphs : 0,
          .pin_memory = spec.data.pin_memory,
          .device = context.device};
}

data::InputFormat input_format(const JobSpec& spec, const data::Dataset& dataset, const RankContext& context) {
  return {.device = context.device,
          .float_type = context.policy.master,
          .channels_last = wants_channels_last(spec, dataset)};
}

data::OrderFacts order_facts(const JobSpec& spec, const TrainingSetup& setup) {
  const auto options = loader_options(spec, *setup.datasets.train, setup.context, setup.plan.batch);
  return {.samples = setup.datasets.train->size(),
          .global_batch = options.partition.global_batch,
          .seed = options.seed,
          .shuffle = options.shuffle,
          .drop_last = options.drop_last,
          .repeats = options.repeats,
          .first_step = setup.plan.start.step,
          .from = setup.plan.start.position};
}

void go_on_from(const train::PlanStart& start, const Job& job, TrainingSetup& setup) {
  setup.plan = plan_run(job.spec(), setup.datasets, setup.context, setup.plan.batch.global_batch, start);
  setup.optimizer_stack.schedule = schedule_of(job.spec(), setup.plan);
  if (job.spec().train.ema || job.spec().train.swa)
    setup.optimizer_stack.average_rule = average_rule_of(job.spec().train, setup.plan);
}

OptimizerStack build_optimizer_stack(const Job& job, const RankContext& context, const train::Plan& plan,
                                     const BuiltModel& built) {
  const JobSpec& spec = job.spec();
  OptimizerStack optimizer_stack;
  optimizer_stack.optimizer = optim::catalog().make(spec.optimizer.type, *built.arena);
  if (spec.train.ema || spec.train.swa) {
    GPUTRAIN_ASSERT(!optimizer_stack.optimizer->has_average(), "two averages of the weights");
    optimizer_stack.average_rule = average_rule_of(spec.train, plan);
    if (spec.train.swa && optimizer_stack.average_rule.start > static_cast<double>(plan.curve_steps()))
      throw job.loaded.error("train.swa.start", "the mean would begin after the last step", "75%");
    auto average = std::make_unique<optim::WeightAverage>(std::move(optimizer_stack.optimizer), *built.arena,
                                                          train::buffers_of(*built.model),
                                                          optimizer_stack.average_rule.describe());
    optimizer_stack.optimizer = std::move(average);
  }
  if (optimizer_stack.optimizer->has_average()) optimizer_stack.average = optimizer_stack.optimizer.get();
  optimizer_stack.schedule = schedule_of(spec, plan);
  if (context.policy.loss_scaling) optimizer_stack.scaler = std::make_unique<optim::GradScaler>(context.device);
  return optimizer_stack;
}

train::Evaluator make_evaluator(const JobSpec& spec, std::shared_ptr<const data::Dataset> dataset,
                                const TrainingSetup& setup, std::string role, int64_t most_samples,
                                std::shared_ptr<const tasks::Task> task) {
  const auto& batch = setup.plan.batch;
  const int64_t tokens = setup.datasets.tokens_per_sample() > 0 ? dataset->layout().token_count() : 0;
  auto loader = loader_options(spec, *dataset, setup.context, batch);
  const int world = loader.partition.world_size;
  if (const auto& size = spec.eval.batch_size) loader.partition.micro_batch = *size;
  loader.partition.global_batch = loader.partition.micro_batch * world;
  if (most_samples == 0 && tokens > 0 && role == "val") {
    most_samples = ceil_divide(spec.eval.max_tokens.value_or(0), tokens);
  }
  const data::InputFormat input = input_format(spec, *dataset, setup.context);
  return train::Evaluator(
      std::move(dataset), task ? std::move(task) : setup.datasets.task,
      {.prefix = std::move(role),
       .max_samples = most_samples,
       .weights = setup.built.arena->working_copy(),
       .is_collective = setup.built.sharded != nullptr || setup.context.groups.mesh().has_collective_passes(),
       .mirrors = spec.eval.hflip,
       .pipeline = setup.built.pipeline.get(),
       .input = input,
       .loader = loader});
}

TrainingSetup::TrainingSetup(const Job& job, int64_t kept_global_batch)
    : TrainingSetup(
          job, create_rank_context(job), [&] { return open_datasets(job); }, kept_global_batch) {}

TrainingSetup::TrainingSetup(const Job& job, RankContext at, const std::function<JobDatasets()>& open,
                             int64_t kept_global_batch, Weights weights)
    : context(std::move(at)) {
  try {
    const comm::Mesh& mesh = context.groups.mesh();
    const bool is_checked = weights != Weights::made_up;
    if (is_checked) check_compatibility(job, mesh);
    datasets = open();
    if (is_checked) check_compatibility(job, mesh, datasets.task.get());
    datasets.task->join(context.groups);
    plan = plan_run(job.spec(), datasets, context, kept_global_batch);
    check_mirroring(job, datasets);
    check_micro_batches(job, plan, mesh);
    built =
        weights == Weights::sizes ? model_without_memory(job, datasets, context) : build_model(job, datasets, context);
    optimizer_stack = build_optimizer_stack(job, context, plan, built);
    gradient_sync = plan_gradient_sync(job.spec(), context.groups, *built.arena);
  } catch (const std::exception& failure) {
    fail(context, failure);
  }
}

}  // namespace gputrain::app
