// Checks that all ranks hold the same weights, regularly and before each save.
#pragma once

#include <cstdint>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/parallel/replicas.hpp"
#include "gputrain/train/hook.hpp"
#include "gputrain/train/plan.hpp"

namespace gputrain::train {

class ReplicaHook final : public Hook {
 public:
  struct Parts {
    Cadence cadence;  // never: no check before saves either
    comm::ProcessGroups& groups;
    const device::Arena& arena;
    parallel::NamedTensors buffers;  // the buffers that are equal on all ranks in training
  };
  explicit ReplicaHook(Parts parts) : parts_(std::move(parts)) {}

  Stop after_step(Progress& progress, const StepResult& result, bool requested) override;
  bool will_act(const Progress& progress, bool requested) const override;
  bool is_due() const override;

  /// Compares the ranks, unless this was already done after this step. Throws Error(refused). Every rank must call.
  void check(const Progress& progress);

 private:
  Parts parts_;
  int64_t checked_step_ = 0;  // at the start, all ranks get rank 0's weights
  Stopwatch since_check_;
};

}  // namespace gputrain::train
