#include "gputrain/setup/training_loop.hpp"

#include <algorithm>
#include <utility>

#include "gputrain/train/step.hpp"

namespace gputrain::app {

std::string obstacle_to_recording(const JobSpec& spec, const Assembly& assembly) {
  if (spec.train.cuda_graphs == "off") return "train.cuda_graphs is off";
  if (assembly.reduction.power_sgd) return "parallel.compress: powersgd runs a QR decomposition within the step";
  if (spec.train.activation_checkpointing == "block") return "recomputed blocks set random generator states";
  return {};
}

parallel::Traffic traffic_of_step(const Assembly& assembly) {
  const auto& built = assembly.built;
  return parallel::traffic_of_step(*built.arena, assembly.reduction.options(built.owners),
                                   assembly.place.groups.world_size(), assembly.plan.batch.accumulation);
}

TrainingLoop::TrainingLoop(const JobSpec& spec, Assembly& assembly, train::StopReason own_stop,
                           std::function<void()> before_update, MakeRecording make_recording)
    : spec_(spec),
      assembly_(assembly),
      own_stop_(std::move(own_stop)),
      before_update_(std::move(before_update)),
      make_recording_(std::move(make_recording)),
      data_parallel_(assembly.place.groups, *assembly.built.arena, assembly.built.parameters,
                     assembly.reduction.options(assembly.built.owners)) {}

train::Outcome TrainingLoop::run(train::Progress& progress, const std::vector<train::Hook*>& hooks, int64_t last_step) {
  auto& [place, datasets, plan, built, updates, reduction, micro_batch] = assembly_;
  train::Plan until = plan;
  until.total_steps = std::min(plan.total_steps, last_step);
  data::LoaderOptions reading = loader_options(spec_, *datasets.train, place, plan.batch);
  reading.pads = !built.sync_batch_norm;  // padding would change the batch statistics
  if (!until.is_time_limited()) reading.total_steps = until.total_steps;
  data::Loader loader(datasets.train, reading, {.step = progress.step, .unreadable = progress.unreadable_in_epoch});
  const data::Preprocess preprocess(*datasets.train, input_format(spec_, *datasets.train, place));
  train::Step step(
      {*built.model, *built.arena, *datasets.task, preprocess, data_parallel_, *updates.optimizer, updates.scaler.get(),
       before_update_, obstacle_to_recording(spec_, assembly_).empty() ? make_recording_(place.device) : nullptr,
       [&](bool here) { return place.groups.holds_everywhere(here, "whether the step was recorded"); }},
      {.max_grad_norm = spec_.train.max_grad_norm, .sync_batch_norm = built.sync_batch_norm});
  train::Feed feed(loader, place.groups, own_stop_, [&](const data::StepData& data) { return step.can_replay(data); });
  const auto lr = [&](int64_t at) { return updates.schedule->lr(at); };
  return train::Trainer({step, feed, until, lr, place.groups, place.device}, hooks).run(progress);
}

}  // namespace gputrain::app
