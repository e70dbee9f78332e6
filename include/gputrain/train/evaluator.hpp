// Evaluation: every sample of a dataset exactly once over all ranks, sums joined at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/data/preprocess.hpp"
#include "gputrain/device/working_copy.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/monitor/record.hpp"
#include "gputrain/parallel/replicas.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/preemption.hpp"

namespace gputrain::train {

parallel::NamedTensors buffers_of(models::Model& model);

/// Gives every rank rank 0's buffers: batch norm's averages drift apart in training. Every rank must call.
void synchronise_buffers(models::Model& model, comm::ProcessGroups& groups);

class Evaluator {
 public:
  struct Options {
    std::string prefix = "val";                            // metric names: "val/loss", "val/top1", ...
    int64_t max_samples = 0;                               // 0: all
    c10::intrusive_ptr<device::WorkingCopy> weights = {};  // the model's, or null
    data::InputFormat input = {};
    data::LoaderOptions loader;  // a step's share is a forward pass on each rank; the order is the evaluator's
  };

  /// `task` says what is measured.
  Evaluator(std::shared_ptr<const data::Dataset> dataset, std::shared_ptr<const tasks::Task> task, Options options);

  /// The task's metrics.
  /// Ends early, with metrics of no use, once `poll` agrees on a stop; then poll.finish() says so.
  /// Every rank must call. The model is back in its earlier mode afterwards.
  monitor::Metrics run(models::Model& model, comm::ProcessGroups& groups, StopPoll& poll) const;

  std::string describe() const { return dataset_->describe(); }  // what is evaluated on

 private:
  std::shared_ptr<const data::Dataset> dataset_;
  std::shared_ptr<const tasks::Task> task_;
  Options options_;
};

}  // namespace gputrain::train
