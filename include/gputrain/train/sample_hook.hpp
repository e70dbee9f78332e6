// Lets the model write a text at intervals while it trains.
#pragma once

#include <functional>
#include <utility>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::train {

/// The hook that writes texts of the model, at the steps of Plan::sample. Only rank 0 writes; the others wait for it in
/// the next step, or compute the same.
class SampleHook final : public Hook {
 public:
  struct Parts {
    Reporting reporting;
    comm::ProcessGroups& groups;
    std::function<void()> write;  // on rank 0
    bool is_collective = false;   // on all ranks, because forward passes are collective
  };
  explicit SampleHook(Parts parts) : parts_(std::move(parts)) {}

  Stop after_step(Progress& progress, const StepResult& result, bool requested) override;
  bool will_act(const Progress& progress, bool requested) const override;
  bool is_due() const override;

 private:
  Parts parts_;
  Stopwatch since_last_;
};

}  // namespace gputrain::train
