// Warns about parameters that the loss does not depend on: they get no gradient, and only weight decay changes them.
#pragma once

#include <memory>

#include "gputrain/models/model.hpp"
#include "gputrain/train/hook.hpp"

namespace gputrain::train {

/// Observes, on the host only, the first step with a loss on this rank, and warns once about parameters that the
/// backward pass did not reach. It is no error: some parameters are unused on purpose.
class UnusedParameterHook final : public Hook {
 public:
  explicit UnusedParameterHook(models::Model& model);
  ~UnusedParameterHook() override;

  void before_training(Progress& progress) override;
  Stop after_step(Progress& progress, const StepResult& result, bool requested) override;

 private:
  class BackwardObserver;
  models::Model& model_;
  std::unique_ptr<BackwardObserver> observer_;  // null before and after the observed step
  bool is_done_ = false;
};

}  // namespace gputrain::train
