// Tells of parameters that the loss does not reach: they get no gradient, and only weight decay changes them.
#pragma once

#include <memory>

#include "gputrain/models/model.hpp"
#include "gputrain/train/hook.hpp"

namespace gputrain::train {

/// Watches the first step that has a loss on this rank, on the host alone, and warns once of the parameters that
/// backward did not come to. That is no error: some are left out on purpose.
class UnreachedHook final : public Hook {
 public:
  explicit UnreachedHook(models::Model& model);
  ~UnreachedHook() override;

  void before_training(Progress& progress) override;
  Stop after_step(Progress& progress, const StepResult& result, bool asked) override;

 private:
  class Watch;
  models::Model& model_;
  std::unique_ptr<Watch> watch_;  // null before the first step and after it
  bool is_done_ = false;
};

}  // namespace gputrain::train
