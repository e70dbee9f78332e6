// Work that a device repeats: recorded once, then started with one call.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

namespace gputrain::device {

/// On a GPU, a CUDA graph. All tensors that `work` reads or writes must keep their addresses: copy inputs into fixed
/// tensors, and read results from the tensors that `work` made. Host values are fixed at recording time. Each replay
/// draws new random numbers, the same as without a recording.
class CapturedGraph {
 public:
  virtual ~CapturedGraph();

  /// Captures what `work` queues on this thread's current stream, without running it. Returns an empty text on success,
  /// else one line with the obstacle, after restoring the state before the call. Throws Error(environment) if it cannot
  /// restore the state. Call it once.
  virtual std::string capture(const std::function<void()>& work) = 0;

  /// Queues the recorded work.
  virtual void replay() = 0;

  /// Queues other work instead, in the memory pool of the recording, because a second pool would double the memory.
  virtual void run_uncaptured(const std::function<void()>& work) = 0;
};

/// Null if the device cannot record.
std::unique_ptr<CapturedGraph> make_captured_graph(at::Device device);

}  // namespace gputrain::device
