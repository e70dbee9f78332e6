// One optimizer step: micro-batches, backward, reduction, unscale, clip, update. Reads nothing back to the host.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/data/loader.hpp"
#include "gputrain/data/preprocess.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/device/captured_graph.hpp"
#include "gputrain/device/phase_clock.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/optim/grad_scaler.hpp"
#include "gputrain/optim/optimizer.hpp"
#include "gputrain/optim/schedule.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "gputrain/parallel/pipeline.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/hook.hpp"
#include "gputrain/train/step_prefetcher.hpp"

namespace gputrain::train {

class Step {
 public:
  struct Options {
    std::optional<double> max_grad_norm;
    bool is_collective = false;  // forward passes are collective over all ranks, so no rank may skip one alone
  };
  /// The objects that a step works on. All must outlive it.
  struct Parts {
    models::Model& model;
    device::Arena& arena;
    const tasks::Task& task;
    const data::Preprocess& preprocess;
    parallel::DataParallel& data_parallel;
    optim::Optimizer& optimizer;
    optim::GradScaler* scaler;                                 // null unless the precision needs loss scaling
    std::function<void()> before_update = [] {};               // called before weights or optimizer state change
    std::unique_ptr<device::CapturedGraphs> graphs = nullptr;  // null: every step is queued without recording
    /// Returns whether a condition holds on every rank. Every rank must call.
    std::function<bool(bool)> holds_everywhere = [](bool here) { return here; };
    device::PhaseClock* clock = nullptr;     // null: phases are not measured
    parallel::Pipeline* pipeline = nullptr;  // null: each rank has all units of the model
  };
  /// Number of passes of the same shapes before one is recorded: in the first ones, libraries choose algorithms and
  /// allocate memory.
  static constexpr int kPassesBeforeCapture = 3;
  /// The most shapes of micro-batches that are recorded. The passes of a step before its last one are graphs of their
  /// own: they do not sum over ranks and do not update.
  static constexpr int64_t kMostGraphs = 8;

  Step(Parts parts, Options options);

  /// Returns how this rank can run the next step, with these data. Ranks may have graphs for different shapes.
  GraphUse graph_use(const data::StepData& data) const;

  /// The numbers of an update, beside the gradients.
  struct Rates {
    double lr = 0;
    double average_weight = 0;  // see optim::AverageRule
  };
  /// Runs a step. Every rank must call, with the agreed `fetched`: either all ranks replay or none does, because the
  /// recording contains collectives.
  StepResult run(const StepPrefetcher::Step& fetched, const Rates& rates);

  /// Runs other work on the device, such as an evaluation. It may use the recording's memory, which lies idle between
  /// steps; nothing that it allocates may live longer than the work.
  void run_between_steps(const std::function<void()>& work);

 private:
  /// Results of an update, on the device.
  struct Updated {
    at::Tensor gradient_norm, found_inf;
  };
  /// The key of a graph: the pass that it repeats, and whether the update follows it.
  struct Shapes {
    bool is_last = false;
    std::vector<int64_t> sizes;

    auto operator<=>(const Shapes&) const = default;
  };
  struct Recording {
    Batch input;  // on the device
    size_t graph = 0;
    Updated updated;           // if the update follows
    bool writes_copy = false;  // whether the update writes the arena's working copy together with the values
  };

  void enter(device::Phase phase) const;
  void begin();
  Updated queue(const std::vector<Batch>& batches);
  Updated work(const std::vector<Batch>& batches);
  Updated work_of_part(const Batch& batch, bool is_last);
  Updated update();
  at::Tensor weight_of_target() const;
  void run_pass(const Batch& batch, bool is_last);
  void run_pipeline(const std::vector<Batch>& batches);
  ops::Loss loss_of(const Batch& batch, const at::Tensor& weight);
  bool counts(const Batch& batch) const;
  static Shapes shapes_of(const std::vector<Batch>& batches, size_t index);
  bool has_room(bool is_last) const;
  Updated replay(const std::vector<Batch>& batches, bool records);
  bool record_everywhere(const Shapes& shapes, const Batch& batch);
  std::string capture(const Shapes& shapes, const Batch& batch);
  static void fill(Recording& recording, const Batch& batch);
  void give_up_capture();

  Parts parts_;
  Options options_;
  // Per-step inputs from the host, besides the batches.
  at::Tensor lr_, average_weight_;  // 0-dim: double on the CPU, float on a GPU
  at::Tensor share_;                // 0-dim double: the weight of one target in the step's loss
  at::Tensor loss_sum_;             // 0-dim double: of the passes of the step so far
  bool views_checked_ = false;
  int steps_ = 0;                 // steps run by this object
  std::map<Shapes, int> queued_;  // passes so far
  std::map<Shapes, Recording> recorded_;
};

}  // namespace gputrain::train
