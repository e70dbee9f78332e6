// Work that a device is given again and again: recorded once, then started with a single call.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

namespace gputrain::device {

/// On a GPU a CUDA graph. What `work` reads and writes has to stay where it is: inputs are copied into tensors that are
/// kept, results are found in the tensors that `work` made. Numbers of the host are those of the recording for ever.
/// Random numbers are drawn anew by every replay, the same as without a recording.
class Recording {
 public:
  virtual ~Recording();

  /// Notes what `work` queues on the current stream of this thread, and runs none of it. Returns why that is
  /// impossible, in a line; empty: it is recorded. After an obstacle everything is as it was before the call; throws
  /// Error(environment) where it could not be left so. To be called once.
  virtual std::string record(const std::function<void()>& work) = 0;

  /// Queues all of it.
  virtual void replay() = 0;

  /// Queues other work in its place, in the memory that the recorded work uses: it would be there twice.
  virtual void instead(const std::function<void()>& work) = 0;
};

/// Null for a device that cannot record.
std::unique_ptr<Recording> make_recording(at::Device device);

}  // namespace gputrain::device
