#include "gputrain/train/step.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <utility>

#include "gputrain/core/log.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/optim/gradients.hpp"
#include "profile/profile_range.hpp"

namespace gputrain::train {
namespace {

at::TensorOptions double_on(at::Device device) { return at::TensorOptions().dtype(at::kDouble).device(device); }

/// The shapes by which libraries choose algorithms, and the samples, of which a task may take the rows.
std::vector<int64_t> shapes_of(const std::vector<Batch>& batches) {
  std::vector<int64_t> shapes;
  for (const Batch& batch : batches) {
    shapes.push_back(batch.samples);
    for (const BatchField& field : batch.fields) {
      shapes.push_back(field.values.dim());
      shapes.insert(shapes.end(), field.values.sizes().begin(), field.values.sizes().end());
    }
  }
  return shapes;
}

/// Uninitialised memory of the same shape on `device`; undefined stays undefined.
at::Tensor like_on(at::Device device, const at::Tensor& tensor) {
  return tensor.defined() ? at::empty_like(tensor, tensor.options().device(device).pinned_memory(false)) : tensor;
}

}  // namespace

Step::Step(Parts parts, Options options) : parts_(std::move(parts)), options_(options) {
  const at::Device device = parts_.arena.options().device();
  share_ = at::empty({}, double_on(device));
  lr_ = at::empty({}, share_.options().dtype(device.is_cpu() ? at::kDouble : at::kFloat));
  average_weight_ = at::empty_like(lr_);
}

void Step::enter(device::Phase phase) const {
  if (parts_.clock != nullptr) parts_.clock->enter(phase);
}

StepResult Step::run(const StepPrefetcher::Step& fetched, const Rates& rates) {
  enter(fetched.agreed.replays ? device::Phase::graph : device::Phase::copy);
  lr_.fill_(rates.lr);
  average_weight_.fill_(rates.average_weight);
  share_.fill_(1.0 / divisor_of_loss(fetched.agreed.loss_weight));
  const auto& batches = fetched.data.micro_batches;
  ++steps_;
  // The host decides in each step how to refresh the working copy, so this is not part of the recording.
  const device::Reading reading(parts_.arena.working_copy());
  Work done = fetched.agreed.replays ? replay(batches) : queue(batches);
  if (parts_.clock != nullptr) parts_.clock->leave();
  return {.loss_sum = std::move(done.loss_sum),
          .gradient_norm = std::move(done.gradient_norm),
          .found_inf = std::move(done.found_inf),
          .weight = fetched.agreed.loss_weight,
          .samples = fetched.agreed.usage.samples,
          .lr = rates.lr};
}

/// Runs a step without replay.
Step::Work Step::queue(const std::vector<Batch>& batches) {
  if (recorded_.empty()) {
    if (parts_.captured_graph != nullptr) ++queued_[shapes_of(batches)];
    return work(batches);
  }
  Work done;
  parts_.captured_graph->run_uncaptured([&] { done = work(batches); });
  return {done.loss_sum.clone(), done.gradient_norm.clone(), done.found_inf.clone()};
}

/// The device work of a step. Only the batches, `lr_`, `average_weight_` and `share_` change from step to step.
Step::Work Step::work(const std::vector<Batch>& batches) {
  Work done{.loss_sum = accumulate_gradients(batches), .gradient_norm = {}, .found_inf = {}};
  enter(device::Phase::optimizer);
  const at::NoGradGuard no_grad;
  const ProfileRange range(kUpdateRange);
  optim::GradScaler* scaler = parts_.scaler;
  optim::GradientOptions options{.scale = std::nullopt, .max_norm = options_.max_grad_norm, .all_reduce_sum = {}};
  if (scaler != nullptr) options.scale = scaler->scale();
  if (parts_.data_parallel.has_parts())
    options.all_reduce_sum = [this](const at::Tensor& sum) { parts_.data_parallel.all_reduce_squares(sum); };
  const auto report = optim::measure_gradient(parts_.arena.gradients_of_pieces(), options);
  parts_.before_update();
  parts_.optimizer.step(
      {.lr = lr_, .found_inf = report.found_inf, .divisor = report.divisor, .average_weight = average_weight_});
  enter(device::Phase::communication);
  parts_.data_parallel.all_gather_values();
  if (scaler != nullptr) scaler->update(report.found_inf);
  done.gradient_norm = report.norm;
  done.found_inf = report.found_inf;
  return done;
}

/// Computes the gradient of (loss sum over all ranks and micro-batches) / (their targets), times the loss scale. Leaves
/// it in the arena: all of it on each rank, or only the owned shard. Returns this rank's loss sum.
at::Tensor Step::accumulate_gradients(const std::vector<Batch>& batches) {
  const at::Tensor weight = parts_.scaler == nullptr ? share_ : share_.mul(parts_.scaler->scale());
  parts_.arena.clear_gradients();
  at::Tensor loss_sum = at::zeros({}, share_.options());
  if (parts_.pipeline != nullptr) {
    run_pipeline(batches, weight, loss_sum);
  } else {
    for (size_t i = 0; i < batches.size(); ++i) run_pass(batches[i], i + 1 == batches.size(), weight, loss_sum);
  }
  if (!std::exchange(views_checked_, true)) parts_.arena.check_views();
  return loss_sum;
}

/// The forward and the backward pass of a micro-batch.
void Step::run_pass(const Batch& batch, bool is_last, const at::Tensor& weight, const at::Tensor& loss_sum) {
  parts_.data_parallel.prepare(is_last);
  if (counts(batch)) {  // if it is skipped, finish() reduces the untouched gradients
    const auto loss = loss_of(batch, weight);
    enter(device::Phase::backward);
    const ProfileRange range(kBackwardRange);
    loss.weighted.backward();
    loss_sum.add_(loss.sum);
  }
  enter(device::Phase::communication);
  const ProfileRange range(kReduceRange);
  parts_.data_parallel.finish();
}

void Step::run_pipeline(const std::vector<Batch>& batches, const at::Tensor& weight, const at::Tensor& loss_sum) {
  const auto batch = [&](int64_t index) {
    return parts_.task.part_of(parts_.preprocess(batches[static_cast<size_t>(index)]));
  };
  const auto loss = [&](const Batch& from_hidden) {
    const auto [sum, weighted] = parts_.task.loss(parts_.model, from_hidden, weight);
    loss_sum.add_(sum);
    return weighted;
  };
  std::optional<ProfileRange> range;
  const auto enter_phase = [&](device::Phase phase) {
    enter(phase);
    range.reset();
    range.emplace(phase == device::Phase::forward    ? kForwardRange
                  : phase == device::Phase::backward ? kBackwardRange
                                                     : kReduceRange);
  };
  parts_.pipeline->run({.micro_batches = std::ssize(batches), .batch = batch, .loss = loss, .enter = enter_phase},
                       parts_.data_parallel);
}

/// Does not keep the batch that the loss was computed from.
ops::Loss Step::loss_of(const Batch& batch, const at::Tensor& weight) {
  const ProfileRange range(kForwardRange);
  enter(device::Phase::copy);
  const Batch ready = parts_.preprocess(batch);
  enter(device::Phase::forward);
  return parts_.task.loss(parts_.model, ready, weight);
}

/// Whether the batch has more than padding.
bool Step::counts(const Batch& batch) const {
  return (options_.is_collective ? batch.samples_on_all_ranks : batch.weight) > 0;
}

bool Step::can_replay(const data::StepData& data) const {
  const auto& batches = data.micro_batches;
  if (parts_.captured_graph == nullptr) return false;
  if (!std::all_of(batches.begin(), batches.end(), [this](const Batch& batch) { return counts(batch); })) return false;
  const auto shapes = shapes_of(batches);
  if (!recorded_.empty()) return shapes == shapes_of(recorded_);
  const auto queued = queued_.find(shapes);
  return queued != queued_.end() && queued->second >= kStepsBeforeCapture;
}

void Step::run_between_steps(const std::function<void()>& work) {
  if (!results_.loss_sum.defined()) return work();
  // While the recording lends its memory, LibTorch does not free cached memory, even if memory is short.
  device::free_cached_memory(lr_.device());
  parts_.captured_graph->run_uncaptured(work);
}

Step::Work Step::replay(const std::vector<Batch>& batches) {
  if (recorded_.empty()) {
    const at::Device device = lr_.device();
    recorded_ = batches;  // replaces the tensors by device tensors below
    for (Batch& batch : recorded_) {
      batch.arrival = nullptr;
      for (BatchField& field : batch.fields)
        field = {field.name, like_on(device, field.values), like_on(device, field.counts)};
    }
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    data::await(batches[i]);
    for (size_t f = 0; f < batches[i].fields.size(); ++f) {
      const BatchField &from = batches[i].fields[f], &to = recorded_[i].fields[f];
      to.values.copy_(from.values, /*non_blocking=*/true);
      if (from.counts.defined()) to.counts.copy_(from.counts, /*non_blocking=*/true);
    }
  }
  parts_.before_update();
  if (!results_.loss_sum.defined() && !record()) return work(batches);
  parts_.captured_graph->replay();
  if (const auto& copy = parts_.arena.working_copy()) copy->note_update(writes_copy_);
  // Clone, because the next replay overwrites these tensors and callers keep them longer.
  return {results_.loss_sum.clone(), results_.gradient_norm.clone(), results_.found_inf.clone()};
}

/// Ends pending collectives, because a recording cannot end while they are open.
void Step::give_up_capture() {
  try {
    parts_.data_parallel.abandon();
  } catch (const std::exception&) {
    // Ignored: it is a consequence of the error that is being propagated.
  }
}

bool Step::record() {
  std::optional<device::PhaseClock::Pause> pause;
  if (parts_.clock != nullptr) pause.emplace(*parts_.clock);
  std::string obstacle = parts_.captured_graph->capture([this] {
    try {
      results_ = work(recorded_);
    } catch (...) {
      give_up_capture();
      throw;
    }
  });
  if (!parts_.holds_everywhere(obstacle.empty()) && obstacle.empty())
    obstacle = "it failed on another rank; see its log";
  if (obstacle.empty()) {
    const auto& copy = parts_.arena.working_copy();
    writes_copy_ = copy && copy->is_written();
    log::info("a step is one CUDA graph from here on, the " + std::to_string(steps_) + "th of this attempt");
    return true;
  }
  log::warning("a step cannot be one CUDA graph: " + obstacle);
  parts_.captured_graph.reset();
  recorded_.clear();
  results_ = {};
  return false;
}

}  // namespace gputrain::train
