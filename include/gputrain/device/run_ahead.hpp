// How far the host runs ahead of a GPU: it queues a step in far less time than the step takes.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>

#include <c10/core/Event.h>

namespace gputrain::device {

class RunAhead {
 public:
  /// A CPU has done all that was asked of it: nothing is waited for.
  explicit RunAhead(c10::Device device) : device_(device) {}

  /// The end of a step: behind everything that this thread has queued on its current stream.
  void mark();
  /// Returns once all marked steps but the last `steps` are done. Calls `look` now and then meanwhile, and at the end
  /// of each of them, with the number of steps that were marked after it; what that throws ends the waiting.
  void wait(size_t steps, const std::function<void(size_t)>& look);

 private:
  c10::Device device_;
  std::deque<c10::Event> ends_;  // of steps that may be under way
};

}  // namespace gputrain::device
