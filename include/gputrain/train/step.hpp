// One optimizer step: micro-batches, backward, reduction, unscale, clip, update. Reads nothing on the host.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "gputrain/data/loader.hpp"
#include "gputrain/data/preprocess.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/device/recording.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/optim/grad_scaler.hpp"
#include "gputrain/optim/optimizer.hpp"
#include "gputrain/optim/schedule.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/feed.hpp"
#include "gputrain/train/hook.hpp"

namespace gputrain::train {

class Step {
 public:
  struct Options {
    std::optional<double> max_grad_norm;
    bool sync_batch_norm = false;  // a forward pass is one over all ranks: none leaves it out alone
  };
  /// What a step works on; all outlive it.
  struct Parts {
    models::Model& model;
    device::Arena& arena;
    const tasks::Task& task;
    const data::Preprocess& preprocess;
    parallel::DataParallel& data_parallel;
    optim::Optimizer& optimizer;
    optim::GradScaler* scaler;                               // null unless the precision needs loss scaling
    std::function<void()> before_update = [] {};             // called before weights or optimizer state change
    std::unique_ptr<device::Recording> recording = nullptr;  // null: the work of every step is queued anew
    /// Whether something holds on every rank, which all call it.
    std::function<bool(bool)> holds_everywhere = [](bool here) { return here; };
  };
  /// Steps of the same shapes that are taken before one is recorded: libraries choose algorithms in the first ones, and
  /// get memory.
  static constexpr int kStepsBeforeRecording = 3;

  Step(Parts parts, Options options);

  /// Whether the next step, with these data, can be a replay on this rank, or be recorded for one.
  bool can_replay(const data::StepData& data) const;

  /// Runs the step with learning rate `lr`. Every rank must call, with what the ranks agreed on: all of them replay it
  /// or none does, for its collectives are recorded with it.
  StepResult run(const Feed::Step& feed, double lr);

 private:
  /// What a step's work leaves on the device.
  struct Work {
    at::Tensor loss_sum, gradient_norm, found_inf;
  };

  Work queue(const std::vector<Batch>& batches);
  Work work(const std::vector<Batch>& batches);
  at::Tensor accumulate_gradients(const std::vector<Batch>& batches);
  bool counts(const Batch& batch) const;
  Work replay(const std::vector<Batch>& batches);
  bool record();
  void give_up_recording();

  Parts parts_;
  Options options_;
  // What of a step comes from the host, beside its batches.
  at::Tensor lr_;     // 0-dim: double on the CPU, float on a GPU
  at::Tensor share_;  // 0-dim double: of one target in the step's loss
  bool views_checked_ = false;
  int steps_ = 0;                               // taken by this object
  std::map<std::vector<int64_t>, int> queued_;  // of them, before one was recorded, by the shapes of their batches
  std::vector<Batch> recorded_;  // where the recorded work looks for its batches; empty until there is some
  Work results_;                 // where it leaves its results
  bool writes_copy_ = false;     // whether it writes the arena's working copy with the values
};

}  // namespace gputrain::train
