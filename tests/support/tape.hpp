// Records the ATen operators of CPU work with their arguments; replay() runs them again. As in a CUDA graph, host
// numbers and tensors that are no longer read keep their recorded values.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "gputrain/device/captured_graph.hpp"

namespace gputrain::testing_support {

/// Does not record kernels that bypass the dispatcher, such as our fp32 kernels.
class Tape final : public device::CapturedGraph {
 public:
  /// What the tape did; outlives it.
  struct Counts {
    size_t operators = 0;
    int replays = 0;
  };
  explicit Tape(Counts& counts) : counts_(counts) {}

  /// Runs the operators once, so the first replay does nothing.
  std::string capture(const std::function<void()>& work) override;
  void replay() override;
  void run_uncaptured(const std::function<void()>& work) override { work(); }

 private:
  struct Call {
    c10::OperatorHandle op;
    std::vector<c10::IValue> arguments, results;
  };
  std::vector<Call> calls_;
  Counts& counts_;
};

}  // namespace gputrain::testing_support
