#include "gputrain/setup/training_loop.hpp"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "gputrain/setup/compatibility.hpp"
#include "gputrain/train/step.hpp"

namespace gputrain::app {

std::string obstacle_to_capture(const JobSpec& spec, const TrainingSetup& setup) {
  if (spec.train.cuda_graphs == "off") return "train.cuda_graphs is off";
  const std::string why = why_given_up("train.cuda_graphs: auto", spec, setup.context.groups.mesh());
  if (!why.empty()) return why;
  const data::Dataset& train = *setup.datasets.train;
  const bool differ = std::ranges::any_of(train.layout().fields, &data::Field::ragged);
  if (differ && train.length(0) == 0) return "the dataset does not tell how long its samples are";
  return {};
}

parallel::GradientTraffic traffic_of_step(const TrainingSetup& setup) {
  const auto& built = setup.built;
  return parallel::traffic_of_step(*built.arena, setup.gradient_sync.options(built.owners), setup.context.groups.mesh(),
                                   setup.plan.batch.accumulation);
}

TrainingLoop::TrainingLoop(const JobSpec& spec, TrainingSetup& setup, train::StopReason own_stop,
                           std::function<void()> before_update, MakeCapturedGraphs make_captured_graphs)
    : spec_(spec),
      setup_(setup),
      own_stop_(std::move(own_stop)),
      before_update_(std::move(before_update)),
      make_captured_graphs_(std::move(make_captured_graphs)),
      data_parallel_(setup.context.groups, *setup.built.arena, setup.built.parameters,
                     setup.gradient_sync.options(setup.built.owners, setup.built.sharded.get())) {}

train::Outcome TrainingLoop::run(train::Progress& progress, const std::vector<train::Hook*>& hooks, int64_t last_step) {
  auto& [context, datasets, plan, built, optimizer_stack, gradient_sync, micro_batch] = setup_;
  train::Plan until = plan;
  until.total_steps = std::min(plan.total_steps, last_step);
  data::LoaderOptions reading = loader_options(spec_, *datasets.train, context, plan.batch);
  // Padding would count in batch statistics, also in the sums that cuDNN computes with a convolution. Smaller batches
  // do not need a count in any kernel; the price is a step per epoch that no CUDA graph replays.
  reading.pads = !built.has_batch_norm;
  if (!until.is_time_limited()) reading.steps = until.total_steps - progress.step;
  reading.class_weights = datasets.task->class_weights();
  auto graphs = obstacle_to_capture(spec_, setup_).empty() ? make_captured_graphs_(context.device) : nullptr;
  if (graphs != nullptr) reading.length_classes = train::Step::kMostGraphs;
  const data::Position from = data::position_after(order_facts(spec_, setup_), progress.step);
  data::Loader loader(datasets.train, reading, {.from = from, .unreadable = progress.unreadable_in_epoch});
  const data::Preprocess preprocess(*datasets.train, input_format(spec_, *datasets.train, context));
  train::Step step(
      {*built.model, *built.arena, *datasets.task, preprocess, data_parallel_, *optimizer_stack.optimizer,
       optimizer_stack.scaler.get(), before_update_,
       std::move(graphs),
       [&](bool here) { return context.groups.holds_everywhere(here, "whether the step was recorded"); }, clock_,
       built.pipeline.get()},
      {.max_grad_norm = spec_.train.max_grad_norm,
       .is_collective = built.sync_batch_norm || built.sharded || context.groups.mesh().has_collective_passes() ||
                        setup_.datasets.task->is_collective()});
  train::StepPrefetcher prefetcher(loader, context.groups, own_stop_,
                                   [&](const data::StepData& data) { return step.graph_use(data); });
  const double peak = spec_.optimizer.peak_lr(plan.batch.global_batch);
  const auto rates = [&](train::Progress& now) {
    const double place = plan.curve_step(now.step);
    const optim::AverageRule::At at{.step = now.step, .before = place, .after = plan.curve_step(now.step + 1)};
    return train::Step::Rates{.lr = optim::lr_at(*optimizer_stack.schedule, place) * now.lr_factor(peak),
                              .average_weight = optimizer_stack.average_rule.weight_at(at, now.average_points)};
  };
  struct DuringRun {
    train::Step*& step;
    ~DuringRun() { step = nullptr; }
  };
  step_ = &step;
  const DuringRun during{step_};
  return train::Trainer({step, prefetcher, until, rates, context.groups, context.device, clock_}, hooks).run(progress);
}

void TrainingLoop::exchange_average() {
  const at::NoGradGuard no_grad;
  before_update_();
  setup_.optimizer_stack.average->exchange_average();
  data_parallel_.all_gather_values();
  if (setup_.built.sharded) setup_.built.sharded->release_all();
}

void TrainingLoop::run_with_average(const std::function<void()>& work) {
  if (setup_.optimizer_stack.average == nullptr) return run_between_steps(work);
  run_between_steps([&] {
    exchange_average();
    work();
    exchange_average();
  });
}

void TrainingLoop::end_with_average() {
  if (setup_.optimizer_stack.average != nullptr) exchange_average();
}

}  // namespace gputrain::app
