// Shows at intervals how the values of the trained parameters and their gradients are distributed.
#pragma once

#include <string>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::train {

/// Logs "weights/NAME" and "gradients/NAME", by the names of checkpoints, as Plan::histograms says. Gradients are those
/// of the step just done, summed over ranks, without loss scale and before clipping. Weights that are not all finite
/// have no histogram; if one gradient is not finite, no gradient has one. If each rank has a shard of the gradient, all
/// count theirs; else rank 0 counts alone.
class HistogramHook final : public Hook {
 public:
  struct Parts {
    Reporting reporting;
    comm::ProcessGroups& groups;
    const device::Arena& arena;
    bool shares_gradients = false;  // each rank has only its shard of the gradient
  };
  explicit HistogramHook(Parts parts) : parts_(parts) {}

  Stop after_step(Progress& progress, const StepResult& result, bool requested) override;
  bool will_act(const Progress& progress, bool requested) const override;
  bool is_due() const override;

 private:
  void add_weights(monitor::Histograms& histograms) const;
  void add_gradients(monitor::Histograms& histograms, double norm) const;

  Parts parts_;
  Stopwatch since_last_;
};

}  // namespace gputrain::train
