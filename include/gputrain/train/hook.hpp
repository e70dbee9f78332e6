// What happens around the loop, without being in it: logging, evaluation, checkpoints.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

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
  /// After every optimizer step, on every rank, in the same order. `asked`: rank 0's is_due() was true before the step.
  virtual void after_step(Progress& progress, const StepResult& result, bool asked) = 0;
  /// Once at the end, not after an error. `stopped`: on request, to be continued later: only what must not be lost is
  /// done now, quickly.
  virtual void after_training(Progress&, bool /*stopped*/) {}

  /// Whether the clock says that this hook should act; only rank 0's answer counts, and all ranks follow it.
  virtual bool is_due() const { return false; }

  /// What must be in a checkpoint so that a resumed run continues this hook exactly; null: nothing. Every rank must
  /// call; rank 0's answer is kept and given to every rank.
  virtual nlohmann::json state();
  virtual void restore(const nlohmann::json& state);
};

}  // namespace gputrain::train
