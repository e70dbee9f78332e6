// Evaluation: runs every sample of a dataset exactly once over all ranks, then merges the metric sums.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/data/preprocess.hpp"
#include "gputrain/device/working_copy.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/monitor/record.hpp"
#include "gputrain/parallel/pipeline.hpp"
#include "gputrain/parallel/replicas.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/preemption.hpp"

namespace gputrain::train {

parallel::NamedTensors buffers_of(models::Model& model);

/// Copies rank 0's buffers to all ranks: batch-norm averages diverge in training. Every rank must call.
void synchronise_buffers(models::Model& model, comm::ProcessGroups& groups);

class Evaluator {
 public:
  struct Options {
    std::string prefix = "val";                            // metric names: "val/loss", "val/top1", ...
    int64_t max_samples = 0;                               // 0: all
    c10::intrusive_ptr<device::WorkingCopy> weights = {};  // the model's working copy, or null
    bool is_collective = false;  // forward passes are collective over all ranks, so no rank may skip one alone
    bool mirrors = false;        // see models::Mirrored
    parallel::Pipeline* pipeline = nullptr;  // null: each rank has all units of the model
    data::InputFormat input = {};
    data::LoaderOptions loader;  // its share is one forward pass on each rank per step; the evaluator sets the order
  };

  /// `task` defines the metrics.
  Evaluator(std::shared_ptr<const data::Dataset> dataset, std::shared_ptr<const tasks::Task> task, Options options);

  /// Returns the task's metrics and restores the model's mode. If `poll` agrees on a stop, returns early with unusable
  /// metrics; poll.finish() then returns the stop. Every rank must call.
  monitor::Metrics run(models::Model& model, comm::ProcessGroups& groups, StopPoll& poll) const;

  /// Returns the sums and rows of which the metrics are made.
  tasks::Totals totals(models::Model& model, comm::ProcessGroups& groups, StopPoll& poll) const;

  monitor::Metrics metrics_of(const tasks::Totals& totals) const;

  /// Returns, from Task::sample_results() and for report.html, the confused classes and the samples with the greatest
  /// losses, with pictures of images; of masks, those with most wrong pixels. Null: the task has no results of samples.
  nlohmann::ordered_json details_of(const tasks::Totals& totals) const;

  std::string describe() const { return dataset_->describe(); }

 private:
  std::shared_ptr<const data::Dataset> dataset_;
  std::shared_ptr<const tasks::Task> task_;
  Options options_;
};

}  // namespace gputrain::train
