#include "gputrain/train/evaluator.hpp"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "gputrain/core/numbers.hpp"
#include "gputrain/data/subset.hpp"
#include "gputrain/parallel/replicas.hpp"

namespace gputrain::train {
namespace {

/// Sets the model to evaluation mode during its lifetime.
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

}  // namespace

parallel::NamedTensors buffers_of(models::Model& model) {
  parallel::NamedTensors buffers;
  model.each_buffer([&](const std::string& name, nn::Buffer& buffer) { buffers.emplace_back(name, buffer.value); });
  return buffers;
}

void synchronise_buffers(models::Model& model, comm::ProcessGroups& groups) {
  if (!groups.alone()) parallel::broadcast(groups, buffers_of(model));
}

Evaluator::Evaluator(std::shared_ptr<const data::Dataset> dataset, std::shared_ptr<const tasks::Task> task,
                     Options options)
    : dataset_(std::move(dataset)), task_(std::move(task)), options_(std::move(options)) {
  if (options_.max_samples > 0) dataset_ = std::make_shared<data::FirstSamples>(dataset_, options_.max_samples);
  options_.loader.shuffle = false;
  options_.loader.augment = false;
  options_.loader.drop_last = false;
}

tasks::Totals Evaluator::totals(models::Model& model, comm::ProcessGroups& groups, StopPoll& poll) const {
  const at::NoGradGuard no_grad;
  const EvaluationMode mode(model);
  const device::Reading reading(options_.weights);
  synchronise_buffers(model, groups);
  if (options_.pipeline != nullptr) options_.pipeline->share_ends();
  auto options = options_.loader;
  const int64_t steps = ceil_divide(dataset_->size(), options.partition.global_batch);
  options.steps = steps;
  data::Loader loader(dataset_, options);
  const data::Preprocess preprocess(*dataset_, options_.input);
  tasks::Tally tally(task_->parts(), model.context().device);
  for (int64_t step = 0; step < steps; ++step) {
    if (poll.next() != Stop::none) return {};
    const auto data = loader.next_step();
    for (const Batch& batch : data.micro_batches) {
      if ((options_.is_collective ? batch.samples_on_all_ranks : batch.weight) == 0) continue;
      if (groups.mesh().counts_samples(groups.rank())) tally.add_weight(batch.weight);
      const Batch ready = preprocess(batch);
      if (options_.pipeline == nullptr) {
        task_->evaluate(model, ready, tally);
      } else if (const auto last = options_.pipeline->pass(task_->part_of(ready))) {
        task_->evaluate(model, *last, tally);
      }
    }
  }
  return tally.merge(groups);
}

monitor::Metrics Evaluator::run(models::Model& model, comm::ProcessGroups& groups, StopPoll& poll) const {
  const tasks::Totals found = totals(model, groups, poll);
  monitor::Metrics metrics;
  if (found.sums.empty() && found.rows.empty()) return metrics;  // stopped
  for (const auto& metric : task_->metrics()) metrics[options_.prefix + "/" + metric.name] = metric.finish(found);
  return metrics;
}

}  // namespace gputrain::train
