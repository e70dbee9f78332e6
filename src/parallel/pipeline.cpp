#include "gputrain/parallel/pipeline.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include "gputrain/core/error.hpp"

namespace gputrain::parallel {
namespace {

constexpr int kBefore = 0, kAfter = 1;  // the ranks of a link
constexpr int kFirst = 0, kLast = 1;    // the ranks of the ends

std::string name_of(const Pass& pass) { return "micro-batch " + std::to_string(pass.micro_batch); }

constexpr size_t kMostGradients = 2;  // on their way to the stage before

}  // namespace

Pipeline::Pipeline(comm::ProcessGroups& groups, models::Model& model, std::vector<int64_t> begins, bool has_memory)
    : groups_(groups),
      model_(model),
      begins_(std::move(begins)),
      shape_{.stages = groups.mesh().pipeline, .parts = groups.mesh().virtual_stages},
      stage_(groups.mesh().stage_of(groups.rank())) {
  GPUTRAIN_ASSERT(std::ssize(begins_) == parts() + 1, "a begin for each part of the model");
  const bool is_end = stage_ == 0 || stage_ + 1 == shape_.stages;
  if (!is_end || !model.shared_by_ends().defined()) return;
  shared_ = model.shared_by_ends();
  if (stage_ == 0 || !has_memory) return;
  device::give_memory(shared_);
  const at::NoGradGuard no_grad;
  at::Tensor(shared_.detach()).zero_();
  shared_.set_requires_grad(true);
  shared_.mutable_grad() = at::zeros_like(shared_.detach());
}

int Pipeline::stage_of(int64_t unit) const { return static_cast<int>(stage_of_unit(unit, begins_, shape_.stages)); }

PipelineShape Pipeline::shape(int64_t micro_batches) const {
  PipelineShape shape = shape_;
  shape.micro_batches = micro_batches;
  return shape;
}

PassTimes Pipeline::costs() const {
  const std::vector<double> of_units = model_.flops_of_units();
  PassTimes costs(static_cast<size_t>(parts()), 0.0);
  for (int64_t part = 0; part < parts(); ++part) {
    for (int64_t unit = begin_of(part); unit < end_of(part); ++unit)
      costs[static_cast<size_t>(part)] += of_units[static_cast<size_t>(unit)];
  }
  return costs;
}

int64_t Pipeline::borrowed_bytes() const {
  return shared_.defined() && stage_ > 0 ? static_cast<int64_t>(2 * shared_.nbytes()) : 0;
}

void Pipeline::share_ends() {
  if (!shared_.defined()) return;
  const at::NoGradGuard no_grad;
  sharing_ = groups_.ends().transfer(shared_.detach(), kFirst, "the weights that both ends use");
  if (stage_ > 0) shared_.mutable_grad().zero_();
}

Batch Pipeline::beginning_at(int64_t part, const Batch& batch, const at::Tensor& hidden) const {
  Batch from_here = batch;
  from_here.first_unit = begin_of(part);
  from_here.hidden = hidden;
  return from_here;
}

/// Returns memory like a tensor's; zeros, because imagined neighbours send them.
at::Tensor Pipeline::memory_like(at::Tensor tensor) const { return groups_.is_simulated() ? tensor.zero_() : tensor; }

/// The passes of a step.
struct Pipeline::Run {
  /// Between the forward and the backward pass of a micro-batch through a part.
  struct Held {
    at::Tensor in, out;
    comm::Pending sent;  // `out`
  };
  /// A tensor that must stay until it is sent.
  struct Outgoing {
    at::Tensor tensor;
    comm::Pending pending;
  };
  /// The input of a pass, on its way.
  struct Incoming {
    std::optional<Batch> batch;  // batch of a forward pass
    at::Tensor tensor;           // undefined: it reads nothing from another stage
    comm::Pending pending;
  };

  Pipeline& pipeline;
  const Work& work;
  DataParallel& data_parallel;
  std::map<std::pair<int64_t, int64_t>, Held> held = {};  // keys: part and micro-batch
  std::deque<Outgoing> gradients = {};
  comm::Pending end_gradient = {};

  bool is_last(const Pass& pass) const { return pass.micro_batch + 1 == work.micro_batches; }
  static std::pair<int64_t, int64_t> key_of(const Pass& pass) { return {pass.part, pass.micro_batch}; }

  Incoming start_receiving(const Pass& pass) {
    const int64_t part = pipeline.part_here(pass);
    Incoming incoming;
    if (pass.is_forward) incoming.batch = work.batch(pass.micro_batch);
    if (pass.is_forward ? part == 0 : pipeline.is_last(part)) return incoming;
    const at::NoGradGuard no_grad;
    if (pass.is_forward) {
      incoming.tensor = pipeline.memory_like(pipeline.model_.empty_hidden(*incoming.batch));
      incoming.pending = pipeline.groups_.to_previous().activations.transfer(incoming.tensor, kBefore,
                                                                             "activations of " + name_of(pass));
    } else {
      incoming.tensor = pipeline.memory_like(at::empty_like(held.at(key_of(pass)).out));
      incoming.pending =
          pipeline.groups_.to_next().gradients.transfer(incoming.tensor, kAfter, "gradients of " + name_of(pass));
    }
    return incoming;
  }

  void forward(const Pass& pass, Incoming incoming) {
    const int64_t part = pipeline.part_here(pass);
    Held& now = held[key_of(pass)];
    now.in = incoming.tensor;
    if (now.in.defined()) now.in.set_requires_grad(true);
    const Batch batch = pipeline.beginning_at(part, *incoming.batch, now.in);
    if (pipeline.is_last(part)) {
      pipeline.sharing_.wait();
      now.out = work.loss(batch);
      return;
    }
    now.out = pipeline.model_.run_units(batch, pipeline.end_of(part)).contiguous();
    now.sent =
        pipeline.groups_.to_next().activations.transfer(now.out.detach(), kBefore, "activations of " + name_of(pass));
  }

  void backward(const Pass& pass, const Incoming& incoming) {
    const int64_t part = pipeline.part_here(pass);
    Held now = std::move(held.extract(key_of(pass)).mapped());
    now.sent.wait();
    if (part == 0 && is_last(pass)) add_end_gradient();
    now.out.backward(incoming.tensor);  // undefined for the loss, which begins with 1
    if (part > 0) send_back(pass, now.in.grad().contiguous());
    if (pipeline.is_last(part) && is_last(pass) && pipeline.shared_.defined())
      end_gradient = pipeline.groups_.ends().transfer(pipeline.shared_.grad(), kLast, "gradients of shared weights");
  }

  /// Adds, on the first stage, the gradient of the weights that it shares with the last one, which is done with them.
  void add_end_gradient() {
    if (!pipeline.shared_.defined()) return;
    const at::NoGradGuard no_grad;
    const at::Tensor more = pipeline.memory_like(at::empty_like(pipeline.shared_.detach()));
    pipeline.groups_.ends().transfer(more, kLast, "gradients of shared weights").wait();
    if (pipeline.shared_.grad().defined()) {
      pipeline.shared_.mutable_grad().add_(more);
    } else {  // it has memory only while it is on its way to its owner
      pipeline.shared_.mutable_grad() = more;
    }
  }

  void send_back(const Pass& pass, const at::Tensor& gradient) {
    if (gradients.size() >= kMostGradients) {  // the stage before asks for them whatever this one does
      gradients.front().pending.wait();
      gradients.pop_front();
    }
    gradients.push_back({gradient, pipeline.groups_.to_previous().gradients.transfer(gradient, kAfter,
                                                                                     "gradients of " + name_of(pass))});
  }

  void operator()() {
    const auto passes = passes_of(pipeline.shape(work.micro_batches), pipeline.stage_);
    // On a GPU, what waits for another rank takes multiprocessors from what computes.
    const bool receives_ahead = pipeline.model_.context().device.is_cpu();
    const bool in_parts = pipeline.shape_.parts > 1;
    if (in_parts) data_parallel.prepare(/*is_last=*/true);
    Incoming next = start_receiving(passes.front());
    for (size_t i = 0; i < passes.size(); ++i) {
      const Pass& pass = passes[i];
      work.enter(device::Phase::communication);
      Incoming now = std::move(next);
      now.pending.wait();
      const bool has_next = i + 1 < passes.size();
      const bool is_ahead = has_next && receives_ahead && knows_sizes(passes[i + 1], pass);
      if (is_ahead) next = start_receiving(passes[i + 1]);
      // The head may leave gradients of its weights in its forward pass.
      const bool begins = !in_parts && pass.is_forward == pipeline.is_last(pipeline.part_here(pass));
      if (begins) data_parallel.prepare(is_last(pass));
      if (in_parts && !pass.is_forward) data_parallel.expect(is_last(pass));
      work.enter(pass.is_forward ? device::Phase::forward : device::Phase::backward);
      pass.is_forward ? forward(pass, std::move(now)) : backward(pass, now);
      if (!pass.is_forward && !in_parts) {
        work.enter(device::Phase::communication);
        data_parallel.finish();
      }
      if (has_next && !is_ahead) next = start_receiving(passes[i + 1]);
    }
    work.enter(device::Phase::communication);
    if (in_parts) data_parallel.finish();
    for (Outgoing& one : gradients) one.pending.wait();
    end_gradient.wait();
    pipeline.sharing_.wait();
  }

  /// Returns whether the sizes of what a pass receives are known before the pass before it has run.
  static bool knows_sizes(const Pass& pass, const Pass& before) {
    return pass.is_forward || key_of(pass) != key_of(before);
  }
};

void Pipeline::run(const Work& work, DataParallel& data_parallel) {
  share_ends();
  Run{*this, work, data_parallel}();
}

std::optional<Batch> Pipeline::pass(const Batch& batch) {
  for (int64_t part = stage_; part < parts(); part += shape_.stages) {
    at::Tensor hidden;
    if (part > 0) {
      hidden = memory_like(model_.empty_hidden(batch));
      groups_.to_previous().activations.transfer(hidden, kBefore, "activations of an evaluation").wait();
    }
    Batch from_here = beginning_at(part, batch, hidden);
    if (is_last(part)) {
      sharing_.wait();
      return from_here;
    }
    const at::Tensor out = model_.run_units(from_here, end_of(part)).contiguous();
    groups_.to_next().activations.transfer(out, kBefore, "activations of an evaluation").wait();
  }
  sharing_.wait();
  return std::nullopt;
}

}  // namespace gputrain::parallel
