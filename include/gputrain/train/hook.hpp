// What happens around the loop, without being in it: logging, evaluation, checkpoints.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "gputrain/train/preemption.hpp"
#include "gputrain/train/progress.hpp"

namespace gputrain::train {

/// What one optimizer step leaves behind. Tensors are on the device and must not be read on the host every step.
struct StepResult {
  at::Tensor loss_sum;       // double scalar: sum over this rank's targets
  at::Tensor gradient_norm;  // scalar: 2-norm before clipping, over all ranks
  at::Tensor found_inf;      // [1] float: nonzero when the update was left out
  int64_t weight = 0;        // targets over all ranks
  int64_t samples = 0;       // samples over all ranks
  double lr = 0;
};

class Hook {
 public:
  virtual ~Hook();

  virtual void before_training(Progress&) {}
  /// After every optimizer step, on every rank, in the same order. `asked`: some rank's is_due() was true before the
  /// step. Returns a stop when the ranks agreed on one meanwhile: training ends here.
  virtual Stop after_step(Progress& progress, const StepResult& result, bool asked) = 0;
  /// Once at the end, not after an error. `stopped`: on request, to be continued later: only what must not be lost is
  /// done now, quickly. Returns a stop as after_step does.
  virtual Stop after_training(Progress&, bool /*stopped*/) { return Stop::none; }

  /// Whether after_step() is to look at what the device has computed, or to do what is not training: the time of a step
  /// then ends when the device is done with it.
  virtual bool will_act(const Progress&, bool asked) const { return asked; }

  /// Whether a clock or a request says that this hook should act; when any rank's does, all of them act.
  virtual bool is_due() const { return false; }

  /// What must be in a checkpoint so that a resumed run continues this hook exactly; null: nothing. Every rank must
  /// call; rank 0's answer is kept and given to every rank.
  virtual nlohmann::json state();
  virtual void restore(const nlohmann::json& state);
};

}  // namespace gputrain::train
