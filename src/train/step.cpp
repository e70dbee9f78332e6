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

/// Returns uninitialised memory of the same shape on `device`; undefined stays undefined.
at::Tensor like_on(at::Device device, const at::Tensor& tensor) {
  return tensor.defined() ? at::empty_like(tensor, tensor.options().device(device).pinned_memory(false)) : tensor;
}

}  // namespace

Step::Step(Parts parts, Options options) : parts_(std::move(parts)), options_(options) {
  const at::Device device = parts_.arena.options().device();
  share_ = at::empty({}, double_on(device));
  loss_sum_ = at::empty({}, double_on(device));
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
  begin();
  Updated done = fetched.agreed.replays ? replay(batches, fetched.agreed.records) : queue(batches);
  if (parts_.clock != nullptr) parts_.clock->leave();
  // A clone, because the next step begins its sum anew.
  return {.loss_sum = loss_sum_.clone(),
          .gradient_norm = std::move(done.gradient_norm),
          .found_inf = std::move(done.found_inf),
          .weight = fetched.agreed.loss_weight,
          .samples = fetched.agreed.usage.samples,
          .lr = rates.lr};
}

void Step::begin() {
  parts_.arena.clear_gradients();
  loss_sum_.zero_();
}

/// Runs a step without replay.
Step::Updated Step::queue(const std::vector<Batch>& batches) {
  if (parts_.graphs != nullptr)
    for (size_t i = 0; i < batches.size(); ++i) ++queued_[shapes_of(batches, i)];
  if (recorded_.empty()) return work(batches);
  Updated done;
  parts_.graphs->run_uncaptured([&] { done = work(batches); });
  return {done.gradient_norm.clone(), done.found_inf.clone()};
}

Step::Updated Step::work(const std::vector<Batch>& batches) {
  if (parts_.pipeline != nullptr) {
    run_pipeline(batches);
    return update();
  }
  Updated done;
  for (size_t i = 0; i < batches.size(); ++i) done = work_of_part(batches[i], i + 1 == batches.size());
  return done;
}

/// Does the device work of a pass, and of the update if it is the last one. Only the batch, `lr_`, `average_weight_`,
/// `share_` and `loss_sum_` change from step to step.
Step::Updated Step::work_of_part(const Batch& batch, bool is_last) {
  run_pass(batch, is_last);
  return is_last ? update() : Updated();
}

Step::Updated Step::update() {
  if (!std::exchange(views_checked_, true)) parts_.arena.check_views();
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
  return {report.norm, report.found_inf};
}

/// Returns the weight of a target in the loss, times the loss scale. The gradient is that of (loss sum over all ranks
/// and micro-batches) / (their targets). After the last pass the arena has all of it on each rank, or only the owned
/// shard.
at::Tensor Step::weight_of_target() const {
  return parts_.scaler == nullptr ? share_ : share_.mul(parts_.scaler->scale());
}

/// Runs the forward and the backward pass of a micro-batch.
void Step::run_pass(const Batch& batch, bool is_last) {
  parts_.data_parallel.prepare(is_last);
  if (counts(batch)) {  // if it is skipped, finish() reduces the untouched gradients
    const auto loss = loss_of(batch, weight_of_target());
    enter(device::Phase::backward);
    const ProfileRange range(kBackwardRange);
    loss.weighted.backward();
    loss_sum_.add_(loss.sum);
  }
  enter(device::Phase::communication);
  const ProfileRange range(kReduceRange);
  parts_.data_parallel.finish();
}

void Step::run_pipeline(const std::vector<Batch>& batches) {
  const at::Tensor weight = weight_of_target();
  const auto batch = [&](int64_t index) {
    return parts_.task.part_of(parts_.preprocess(batches[static_cast<size_t>(index)]));
  };
  const auto loss = [&](const Batch& from_hidden) {
    const auto [sum, weighted] = parts_.task.loss(parts_.model, from_hidden, weight);
    loss_sum_.add_(sum);
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

/// Returns whether the batch has more than padding.
bool Step::counts(const Batch& batch) const {
  return (options_.is_collective ? batch.samples_on_all_ranks : batch.weight) > 0;
}

/// Returns the sizes by which libraries choose algorithms, and the numbers of samples and targets, of which a task may
/// take the rows.
Step::Shapes Step::shapes_of(const std::vector<Batch>& batches, size_t index) {
  Shapes shapes{.is_last = index + 1 == batches.size(), .sizes = {batches[index].samples}};
  for (const BatchField& field : batches[index].fields) {
    shapes.sizes.push_back(field.values.dim());
    shapes.sizes.insert(shapes.sizes.end(), field.values.sizes().begin(), field.values.sizes().end());
    shapes.sizes.push_back(field.most_counted);
  }
  return shapes;
}

bool Step::has_room(bool is_last) const {
  return std::ranges::count_if(recorded_, [&](const auto& one) { return one.first.is_last == is_last; }) < kMostGraphs;
}

GraphUse Step::graph_use(const data::StepData& data) const {
  const auto& batches = data.micro_batches;
  if (parts_.graphs == nullptr) return GraphUse::none;
  GraphUse use = GraphUse::replay;
  for (size_t i = 0; i < batches.size(); ++i) {
    if (!counts(batches[i])) return GraphUse::none;
    const Shapes shapes = shapes_of(batches, i);
    if (recorded_.contains(shapes)) continue;
    const auto queued = queued_.find(shapes);
    const bool is_known = queued != queued_.end() && queued->second >= kPassesBeforeCapture;
    if (!is_known || !has_room(shapes.is_last)) return GraphUse::none;
    use = GraphUse::record;
  }
  return use;
}

void Step::run_between_steps(const std::function<void()>& work) {
  if (recorded_.empty()) return work();
  // While the recording lends its memory, LibTorch does not free cached memory, even if memory is short.
  device::free_cached_memory(lr_.device());
  parts_.graphs->run_uncaptured(work);
}

Step::Updated Step::replay(const std::vector<Batch>& batches, bool records) {
  parts_.before_update();
  Updated done;
  for (size_t i = 0; i < batches.size(); ++i) {
    const Shapes shapes = shapes_of(batches, i);
    const bool is_recorded = parts_.graphs != nullptr && (!records || record_everywhere(shapes, batches[i]));
    if (!is_recorded) {
      done = work_of_part(batches[i], shapes.is_last);
      continue;
    }
    Recording& recording = recorded_.at(shapes);
    fill(recording, batches[i]);
    parts_.graphs->replay(recording.graph);
    if (!shapes.is_last) continue;
    if (const auto& copy = parts_.arena.working_copy()) copy->note_update(recording.writes_copy);
    // Clone, because the next replay overwrites these tensors and callers keep them longer.
    done = {recording.updated.gradient_norm.clone(), recording.updated.found_inf.clone()};
  }
  return done;
}

/// Ends pending collectives, because a recording cannot end while they are open.
void Step::give_up_capture() {
  try {
    parts_.data_parallel.abandon();
  } catch (const std::exception&) {
    // Ignored: it is a consequence of the error that is being propagated.
  }
}

/// Copies a batch to the place at which its graph reads it.
void Step::fill(Recording& recording, const Batch& batch) {
  data::await(batch);
  for (size_t f = 0; f < batch.fields.size(); ++f) {
    const BatchField &from = batch.fields[f], &to = recording.input.fields[f];
    to.values.copy_(from.values, /*non_blocking=*/true);
    if (from.counts.defined()) to.counts.copy_(from.counts, /*non_blocking=*/true);
  }
}

/// Records the work of a pass, unless there is a graph for it; returns why that fails.
std::string Step::capture(const Shapes& shapes, const Batch& batch) {
  if (recorded_.contains(shapes)) return {};
  std::optional<device::PhaseClock::Pause> pause;
  if (parts_.clock != nullptr) pause.emplace(*parts_.clock);
  const bool is_last = shapes.is_last;
  Recording& recording =
      recorded_.emplace(shapes, Recording{.input = batch, .graph = recorded_.size(), .updated = {}}).first->second;
  recording.input.arrival = nullptr;
  for (BatchField& field : recording.input.fields) {
    field.values = like_on(lr_.device(), field.values);
    field.counts = like_on(lr_.device(), field.counts);
  }
  fill(recording, batch);
  std::string obstacle = parts_.graphs->capture([this, is_last, &recording] {
    try {
      recording.updated = work_of_part(recording.input, is_last);
    } catch (...) {
      give_up_capture();
      throw;
    }
  });
  const auto& copy = parts_.arena.working_copy();
  recording.writes_copy = copy && copy->is_written();
  if (obstacle.empty() && recorded_.size() == 1)
    log::info("a step is one CUDA graph from here on, the " + std::to_string(steps_) + "th of this attempt");
  return obstacle;
}

/// Returns whether each rank has a graph for its pass now; false: from here on nothing is recorded. Every rank must
/// call.
bool Step::record_everywhere(const Shapes& shapes, const Batch& batch) {
  std::string obstacle = capture(shapes, batch);
  if (!parts_.holds_everywhere(obstacle.empty()) && obstacle.empty())
    obstacle = "it failed on another rank; see its log";
  if (obstacle.empty()) return true;
  log::warning("a step cannot be one CUDA graph: " + obstacle);
  parts_.graphs.reset();
  recorded_.clear();
  return false;
}

}  // namespace gputrain::train
