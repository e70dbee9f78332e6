// A recording of what a CPU does: every ATen operator with its arguments, done again by a replay. Numbers of the host
// and tensors that are no longer looked at show as they would in a CUDA graph: as those of the recording.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "gputrain/device/recording.hpp"

namespace gputrain::testing_support {

/// Kernels that are called past the dispatcher are not on the tape: those of fp32 are.
class Tape final : public device::Recording {
 public:
  /// What it did, for whoever outlives it.
  struct Counts {
    size_t operators = 0;
    int replays = 0;
  };
  explicit Tape(Counts& counts) : counts_(counts) {}

  /// Operators are done once here: the first replay has nothing left to do.
  std::string record(const std::function<void()>& work) override;
  void replay() override;
  void instead(const std::function<void()>& work) override { work(); }

 private:
  struct Call {
    c10::OperatorHandle op;
    std::vector<c10::IValue> arguments, results;
  };
  std::vector<Call> calls_;
  Counts& counts_;
};

}  // namespace gputrain::testing_support
