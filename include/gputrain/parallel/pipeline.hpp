// Pipeline parallelism: each stage of ranks has some of a model's units, and the micro-batches of a step pass through
// the stages. timetable.hpp says in which order. The output of a unit goes to the stage of the next unit, and its
// gradient comes back, between the ranks at the same place of both stages; these have read the same samples.
//
// A parameter that the last unit shares with the first one (tied embeddings) belongs to the first stage. The last stage
// gets its values at the beginning of a step and gives back its gradient at the end, before the first stage's last
// backward pass. DataParallel, the optimizer and checkpoints see it on the first stage only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/data/batch.hpp"
#include "gputrain/device/phase_clock.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "gputrain/parallel/timetable.hpp"

namespace gputrain::parallel {

class Pipeline {
 public:
  /// `begins`: as cut_units() returns them, for the stages of the groups' mesh. The model's parameters of other stages
  /// have no memory and require no gradient. Both must outlive this. With `has_memory` false, the parameter
  /// that the ends share has no memory either, and no pass can run.
  Pipeline(comm::ProcessGroups& groups, models::Model& model, std::vector<int64_t> begins, bool has_memory = true);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Call before the first pass after weights have changed. Every rank must call.
  void share_ends();

  /// The work of a step.
  struct Work {
    int64_t micro_batches = 0;
    std::function<Batch(int64_t index)> batch;     // one of them, as loss() of the task takes it
    std::function<at::Tensor(const Batch&)> loss;  // of its hidden values, on the last stage: backward starts there
    std::function<void(device::Phase)> enter = [](device::Phase) {};
  };
  /// Runs the forward and backward passes of a step; then the gradients are where DataParallel leaves them. Every rank
  /// must call.
  void run(const Work& work, DataParallel& data_parallel);

  /// Runs a forward pass alone, for an evaluation: on the last stage, returns the batch for the model's last layer.
  /// Every rank must call.
  std::optional<Batch> pass(const Batch& batch);

  /// Fills `values` on every stage with those of the stage of `unit`. Every rank must call.
  void broadcast(const at::Tensor& values, int64_t unit, const std::string& name) {
    groups_.stages().broadcast(values, stage_of(unit), name);
  }

  int stages() const noexcept { return static_cast<int>(shape_.stages); }
  int stage_of(int64_t unit) const;
  bool is_here(int64_t unit) const { return stage_of(unit) == stage_; }
  PipelineShape shape(int64_t micro_batches) const;
  /// Returns the costs of the model's parts, each the sum of its units' costs.
  PassTimes costs() const;
  /// Returns, on the last stage, the bytes of the parameter that it shares with the first one, and of its gradient.
  int64_t borrowed_bytes() const;
  /// Return the units [begin, end) of a part of the model, counted over all stages.
  int64_t begin_of(int64_t part) const { return begins_[static_cast<size_t>(part)]; }
  int64_t end_of(int64_t part) const { return begins_[static_cast<size_t>(part + 1)]; }

 private:
  struct Run;
  int64_t parts() const noexcept { return shape_.stages * shape_.parts; }
  int64_t part_here(const Pass& pass) const noexcept { return pass.part * shape_.stages + stage_; }
  bool is_last(int64_t part) const noexcept { return part + 1 == parts(); }
  Batch beginning_at(int64_t part, const Batch& batch, const at::Tensor& hidden) const;
  at::Tensor memory_like(at::Tensor tensor) const;

  comm::ProcessGroups& groups_;
  models::Model& model_;
  std::vector<int64_t> begins_;
  PipelineShape shape_;
  int stage_;
  at::Tensor shared_;      // parameter of both ends, on the first and the last stage; elsewhere undefined
  comm::Pending sharing_;  // its values
};

}  // namespace gputrain::parallel
