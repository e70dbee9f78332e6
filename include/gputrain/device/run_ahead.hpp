// Limits how many steps the host queues ahead of a GPU; queueing a step takes far less time than the step itself.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>

#include <c10/core/Event.h>

namespace gputrain::device {

class RunAhead {
 public:
  /// On a CPU, mark() and wait() do nothing.
  explicit RunAhead(c10::Device device) : device_(device) {}

  /// Marks the end of a step, after all work that this thread has queued on its current stream.
  void mark();
  /// Waits until all marked steps but the last `steps` are done. Calls `look` regularly while waiting and once per
  /// finished step, with the number of steps marked after it. An exception from `look` ends the wait.
  void wait(size_t steps, const std::function<void(size_t)>& look);

 private:
  c10::Device device_;
  std::deque<c10::Event> ends_;  // one per step that may still run
};

}  // namespace gputrain::device
