// Hooks run around training steps: logging, evaluation, checkpoints.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "gputrain/train/preemption.hpp"
#include "gputrain/train/progress.hpp"

namespace gputrain::train {

/// The result of one optimizer step. Tensors are on the device; do not read them on the host every step.
struct StepResult {
  at::Tensor loss_sum;       // double scalar: sum over this rank's targets
  at::Tensor gradient_norm;  // scalar: 2-norm before clipping, over all ranks
  at::Tensor found_inf;      // [1] float: nonzero if the update was skipped
  double weight = 0;         // weight of the targets over all ranks
  int64_t samples = 0;       // samples over all ranks
  double lr = 0;
};

/// Returns the divisor of a sum of losses: the weight of its targets, or 1 if there is none.
inline double divisor_of_loss(double weight) { return weight > 0 ? weight : 1; }

class Hook {
 public:
  virtual ~Hook();

  virtual void before_training(Progress&) {}
  /// Runs before each step, before its data is waited for.
  virtual void before_step(const Progress&) {}
  /// Runs after every optimizer step, on every rank, in the same order. `requested`: is_due() was true on some rank
  /// before the step. Returns a stop if the ranks agreed on one in the meantime: training then ends.
  virtual Stop after_step(Progress& progress, const StepResult& result, bool requested) = 0;
  /// Runs once at the end, unless an error ended training. `stopped`: training will be resumed, so save only what would
  /// be lost, and be quick. Returns a stop like after_step().
  virtual Stop after_training(Progress&, bool /*stopped*/) { return Stop::none; }

  /// Returns whether after_step() will read results from the device or do work that is not training. If so, the loop
  /// first waits for the device, so that the time of the step is complete.
  virtual bool will_act(const Progress&, bool requested) const { return requested; }

  /// Returns whether a clock or a request makes this hook due. If it is due on any rank, it acts on all ranks.
  virtual bool is_due() const { return false; }

  /// Returns whether training stands still after this step, until while_held() changes that; equal on all ranks.
  virtual bool is_holding() const { return false; }
  /// Runs about ten times a second while a hook holds training, on every rank, in the same order. `requested` and the
  /// result are those of after_step().
  virtual Stop while_held(Progress&, bool /*requested*/) { return Stop::none; }

  /// Returns the state for the checkpoint, so that a resumed run continues this hook exactly; null: none. Every rank
  /// must call; restore() gives rank 0's state to every rank.
  virtual nlohmann::json state();
  virtual void restore(const nlohmann::json& state);
};

}  // namespace gputrain::train
