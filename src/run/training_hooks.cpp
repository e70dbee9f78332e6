// The parts of an attempt's hooks: their settings, and the objects and functions of the attempt that they use.
#include <fstream>
#include <utility>

#include <ATen/TensorOperators.h>
#include <nlohmann/json.hpp>

#include "evaluation_pictures.hpp"
#include "gputrain/nn/experts.hpp"
#include "gputrain/run/report.hpp"
#include "gputrain/run/training.hpp"
#include "gputrain/setup/training_loop.hpp"

namespace gputrain::app {
namespace {

/// Returns train/expert_share_max and _min since the last call: the largest and the smallest part of a layer's choices
/// that one of its experts has, over all layers and ranks; all are 1 / experts if they are even. Empty for a model
/// without experts, and if no token was counted. Reads from the device. Every rank must call.
monitor::Metrics expert_shares(models::Model& model, comm::ProcessGroups& groups) {
  auto* const counting = dynamic_cast<nn::ExpertCounts*>(&model);
  at::Tensor counts = counting != nullptr ? counting->take_expert_counts() : at::Tensor();
  if (!counts.defined()) return {};
  groups.tensors().all_reduce_sum(counts, "tokens of experts").wait();
  const at::Tensor here = counts.cpu(), shares = here / here.sum(1, /*keepdim=*/true);
  if (here.sum(1).min().item<double>() == 0) return {};
  return {{"train/expert_share_max", shares.max().item<double>()},
          {"train/expert_share_min", shares.min().item<double>()}};
}

}  // namespace

train::EvalHook::Parts Training::eval_parts(TrainingLoop& loop) {
  const auto follow = [this](const optim::Evaluated& evaluated, optim::Feedback& feedback) {
    setup_.optimizer_stack.schedule->follow(evaluated, feedback);
  };
  return {make_evaluator(spec_, setup_.datasets.val, setup_, "val"),
          *setup_.built.model,
          setup_.context.groups,
          reporting_,
          [this] { return own_stop(); },
          spec_.eval.at_start,
          watched_metric_of(spec_, setup_.datasets),
          spec_.eval.early_stopping,
          [this](const auto& details) { tell_evaluation(details); },
          follow,
          [&loop](const auto& work) { loop.run_with_average(work); }};
}

/// Keeps what an evaluation says of single samples, and shows it to trackers.
void Training::tell_evaluation(const nlohmann::ordered_json& details) {
  write_evaluation(folder_, details);
  if (!spec_.log.pictures || !recorder_.shows_pictures()) return;
  const int64_t step = details["step"];
  const double epoch = setup_.plan.epochs_in(step);
  if (auto pictures = evaluation_pictures(details); !pictures.empty())
    recorder_.log({.step = step, .epoch = epoch, .kind = "picture", .pictures = std::move(pictures)});
}

train::ReplicaHook::Parts Training::replica_parts() {
  const auto& built = setup_.built;
  return {.cadence = setup_.plan.cadence_of(spec_.parallel.check_replicas, "parallel.check_replicas"),
          .groups = setup_.context.groups,
          .arena = *built.arena,
          .buffers = built.sync_batch_norm ? train::buffers_of(*built.model) : parallel::NamedTensors()};
}

train::SaveHook::Parts Training::save_parts(std::function<void(const train::Progress&, train::SaveMode)> save) {
  const train::Cadence& cadence = setup_.plan.save;
  return {.cadence = cadence,
          .pace = cadence.is_auto && setup_.context.rank() == 0 ? &pace_ : nullptr,
          .best_metric = cadence.is_never() ? "" : checkpointing_.best_metric(),
          .requests = save_requests_,
          .save = std::move(save),
          .look = [this] { look_at_saves(); },
          .settle = [this] { return checkpointing_.settle(); },
          .saved_evaluation = progress_.evaluates_anew ? -1 : progress_.evaluated_step};
}

train::NonFiniteGuard::Parts Training::guard_parts(std::function<bool()> others_due) {
  const auto& context = setup_.context;
  return {.spec = spec_.train,
          .look_every = context.device.is_cpu() ? 1 : train::kDeviceLookEvery,
          .scaler = setup_.optimizer_stack.scaler.get(),
          .plan = setup_.plan,
          .order = order_facts(spec_, setup_),
          .ledger = ledger_,
          .others_due = std::move(others_due),
          .sends_fp16 = spec_.parallel.compress == "fp16" && context.groups.world_size() > 1};
}

train::ControlHook::Parts Training::control_parts(train::ProfileHook& profile) {
  return {.control = live_.control(),
          .groups = setup_.context.groups,
          .reporting = reporting_,
          .board = live_.board(),
          .ledger = ledger_,
          .peak_lr = spec_.optimizer.peak_lr(setup_.plan.batch.global_batch),
          .job_lr = spec_.optimizer.lr,
          .request_save = [this] { std::ofstream(folder_.save_request()).flush(); },
          .profile = profile};
}

train::ProfileHook::Parts Training::profile_parts() {
  const auto& context = setup_.context;
  const auto file = folder_.profile() / ("rank" + std::to_string(context.rank()) + ".trace.json");
  return {.steps = request_.profile,
          .file = file,
          .model = *setup_.built.model,
          .plan = setup_.plan,
          .device = context.device,
          .tell_saved = [this, file](const train::Progress& progress, const std::string& table) {
            recorder_.log({.step = progress.step,
                           .epoch = setup_.plan.epochs_in(progress.step),
                           .kind = "event",
                           .label = "profile",
                           .text = file.string() + " opens at https://ui.perfetto.dev\n" + table});
          }};
}

/// Returns the metrics of a log line besides those that every run has.
monitor::Metrics Training::more_metrics(train::MeterHook& meter) {
  auto metrics = meter.take_times();
  const auto& scaler = setup_.optimizer_stack.scaler;
  if (scaler) metrics["train/loss_scale"] = scaler->state().scale;
  metrics.merge(expert_shares(*setup_.built.model, setup_.context.groups));
  return metrics;
}

}  // namespace gputrain::app
