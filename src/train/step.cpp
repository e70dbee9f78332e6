#include "gputrain/train/step.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "gputrain/optim/gradients.hpp"

namespace gputrain::train {
namespace {

at::TensorOptions double_on(at::Device device) { return at::TensorOptions().dtype(at::kDouble).device(device); }

}  // namespace

StepResult Step::run(const Feed::Step& feed, double lr) {
  StepResult result{.weight = feed.agreed.weight, .samples = feed.agreed.usage.samples, .lr = lr};
  result.loss_sum = accumulate_gradients(feed);
  const at::NoGradGuard no_grad;
  optim::GradScaler* scaler = parts_.scaler;
  optim::GradientOptions options{.scale = std::nullopt, .max_norm = options_.max_grad_norm, .add_up_over_ranks = {}};
  if (scaler != nullptr) options.scale = scaler->scale();
  if (parts_.data_parallel.shares()) options.add_up_over_ranks = [this](const at::Tensor& sum) { parts_.data_parallel.add_up(sum); };
  const auto report = optim::measure_gradient(parts_.arena.owned_gradients(), options);
  const at::Device device = parts_.arena.values().device();
  const auto rate = at::TensorOptions().dtype(device.is_cpu() ? at::kDouble : at::kFloat).device(device);
  parts_.before_update();
  parts_.optimizer.step({.lr = at::scalar_tensor(lr, rate), .found_inf = report.found_inf, .divisor = report.divisor});
  parts_.data_parallel.publish();
  if (scaler != nullptr) scaler->update(report.found_inf);
  result.gradient_norm = report.norm;
  result.found_inf = report.found_inf;
  return result;
}

/// Leaves the gradient of (loss sum over all ranks and micro-batches) / (their targets), times the loss scale, in the
/// arena, on each rank or what each owns of it; returns this rank's loss sum.
at::Tensor Step::accumulate_gradients(const Feed::Step& feed) {
  const at::Device device = parts_.arena.values().device();
  at::Tensor seed = at::full({}, 1.0 / static_cast<double>(std::max<int64_t>(1, feed.agreed.weight)), double_on(device));
  if (parts_.scaler != nullptr) seed.mul_(parts_.scaler->scale());
  parts_.arena.clear_gradients();
  at::Tensor loss_sum = at::zeros({}, double_on(device));
  const auto& batches = feed.data.micro_batches;
  for (size_t i = 0; i < batches.size(); ++i) {
    parts_.data_parallel.prepare(i + 1 == batches.size());
    // Else padding only: finish() reduces what this rank does not touch.
    if ((options_.sync_batch_norm ? batches[i].samples_on_all_ranks : batches[i].weight) > 0) {
      const at::Tensor loss = parts_.model.loss(parts_.loader.to_device(batches[i]), options_.label_smoothing);
      loss.backward(seed);
      loss_sum.add_(loss.detach());
    }
    parts_.data_parallel.finish();
  }
  if (!std::exchange(views_checked_, true)) parts_.arena.check_views();
  return loss_sum;
}

}  // namespace gputrain::train
