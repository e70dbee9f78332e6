// Work that a device repeats: recorded once, then started with one call.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

namespace gputrain::device {

/// On a GPU, CUDA graphs with one memory pool: never replay two at once. All tensors that `work` reads or writes must
/// keep their addresses: copy inputs into fixed tensors, and read results from the tensors that `work` made. Host values
/// are fixed at recording time. Each replay draws new random numbers, the same as without a recording.
class CapturedGraphs {
 public:
  virtual ~CapturedGraphs();

  /// Captures what `work` queues on this thread's current stream, without running it. Returns an empty text on success,
  /// else one line with the obstacle, after restoring the state before the call. Throws Error(environment) if it cannot
  /// restore the state. The graphs of the calls that succeed have the numbers 0, 1 and so on.
  virtual std::string capture(const std::function<void()>& work) = 0;

  /// Queues recorded work.
  virtual void replay(size_t graph) = 0;

  /// Queues other work instead, in the memory pool of the graphs, because a second pool would double the memory. Call it
  /// after a capture.
  virtual void run_uncaptured(const std::function<void()>& work) = 0;
};

/// Returns null if the device cannot record.
std::unique_ptr<CapturedGraphs> make_captured_graphs(at::Device device);

}  // namespace gputrain::device
