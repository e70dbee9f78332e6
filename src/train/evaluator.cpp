#include "gputrain/train/evaluator.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gputrain/core/numbers.hpp"
#include "gputrain/data/subset.hpp"
#include "gputrain/parallel/replicas.hpp"

namespace gputrain::train {
namespace {

/// The model in evaluation mode for as long as this lives.
class EvaluationMode {
 public:
  explicit EvaluationMode(models::Model& model) : model_(model), was_training_(model.is_training()) {
    model.train(false);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;
  ~EvaluationMode() { model_.train(was_training_); }

 private:
  models::Model& model_;
  bool was_training_;
};

at::Tensor as_vector(const models::Statistics& statistics) {
  return at::stack(
      {statistics.loss_sum.to(at::kDouble), statistics.correct1.to(at::kDouble), statistics.correct5.to(at::kDouble)});
}

}  // namespace

parallel::NamedTensors buffers_of(models::Model& model) {
  parallel::NamedTensors buffers;
  model.each_buffer([&](const std::string& name, nn::Buffer& buffer) { buffers.emplace_back(name, buffer.value); });
  return buffers;
}

void synchronise_buffers(models::Model& model, comm::ProcessGroups& groups) {
  if (!groups.alone()) parallel::broadcast(groups, buffers_of(model));
}

Evaluator::Evaluator(std::shared_ptr<const data::Dataset> dataset, Options options)
    : dataset_(std::move(dataset)), options_(std::move(options)) {
  if (options_.max_samples > 0) dataset_ = std::make_shared<data::FirstSamples>(dataset_, options_.max_samples);
  options_.loader.shuffle = false;
  options_.loader.augment = false;
  options_.loader.drop_last = false;
}

monitor::Metrics Evaluator::run(models::Model& model, comm::ProcessGroups& groups, StopPoll& poll) const {
  const at::NoGradGuard no_grad;
  const EvaluationMode mode(model);
  const device::Reading reading(options_.weights);
  synchronise_buffers(model, groups);
  auto options = options_.loader;
  const int64_t steps = ceil_divide(dataset_->size(), options.share.global_batch);
  options.total_steps = steps;
  data::Loader loader(dataset_, options);
  at::Tensor sums = at::zeros({4}, at::TensorOptions().dtype(at::kDouble).device(model.context().device));
  int64_t weight = 0;
  for (int64_t step = 0; step < steps; ++step) {
    if (poll.next() != Stop::none) return {};
    const auto data = loader.next_step();
    for (const auto& host : data.micro_batches) {
      if (host.weight == 0) continue;
      weight += host.weight;
      sums.narrow(0, 0, 3).add_(as_vector(model.evaluate(loader.to_device(host))));
    }
  }
  sums.narrow(0, 3, 1).fill_(static_cast<double>(weight));
  groups.tensors().all_reduce_sum(sums, "evaluation sums").wait();
  const at::Tensor total = sums.to(at::kCPU);
  const double* sum = total.const_data_ptr<double>();
  const double targets = std::max(1.0, sum[3]), loss = sum[0] / targets;
  const std::string& prefix = options_.prefix;
  if (options_.is_text) return {{prefix + "/loss", loss}, {prefix + "/perplexity", std::exp(loss)}};
  return {
      {prefix + "/loss", loss}, {prefix + "/top1", 100 * sum[1] / targets}, {prefix + "/top5", 100 * sum[2] / targets}};
}

}  // namespace gputrain::train
