// Records the ATen operators of pieces of CPU work with their arguments; replay() runs them again. As in a CUDA graph, host
// numbers and tensors that are no longer read keep their recorded values.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "gputrain/device/captured_graph.hpp"

namespace gputrain::testing_support {

/// Does not record kernels that bypass the dispatcher, such as our fp32 kernels.
class Tape final : public device::CapturedGraphs {
 public:
  /// What the tape did; outlives it.
  struct Counts {
    size_t operators = 0, graphs = 0;
    int replays = 0;
  };
  explicit Tape(Counts& counts) : counts_(counts) {}

  /// Runs the operators once, so the first replay of a graph does nothing.
  std::string capture(const std::function<void()>& work) override;
  void replay(size_t graph) override;
  void run_uncaptured(const std::function<void()>& work) override { work(); }

 private:
  struct Call {
    c10::OperatorHandle op;
    std::vector<c10::IValue> arguments, results;
  };
  struct Graph {
    std::vector<Call> calls;
    bool is_fresh = true;
  };
  std::vector<Graph> graphs_;
  Counts& counts_;
};

}  // namespace gputrain::testing_support
