// Ranks that should hold the same weights, compared now and then and before they are saved.
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
    Cadence cadence;  // never: not before a save either
    comm::ProcessGroups& groups;
    const device::Arena& arena;
    parallel::NamedTensors buffers;  // those that are the same on every rank in training
  };
  explicit ReplicaHook(Parts parts) : parts_(std::move(parts)) {}

  Stop after_step(Progress& progress, const StepResult& result, bool asked) override;
  bool will_act(const Progress& progress, bool asked) const override;
  bool is_due() const override;

  /// Unless that was done after this step already. Throws Error(refused). Every rank must call.
  void check(const Progress& progress);

 private:
  Parts parts_;
  int64_t checked_step_ = 0;  // at the start of training all ranks are given rank 0's
  Stopwatch since_check_;
};

}  // namespace gputrain::train
