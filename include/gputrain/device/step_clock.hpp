// Times intervals of work on a device without making it wait: with events on a GPU, else with the host clock.
#pragma once

#include <memory>
#include <vector>

#include <c10/core/Device.h>

namespace gputrain::device {

class StepClock {
 public:
  explicit StepClock(c10::Device device);
  ~StepClock();

  /// Marks a point after all work that this thread has queued on its current stream.
  void mark();
  /// Returns seconds between each mark and the next; waits for the device.
  std::vector<double> seconds() const;

 private:
  struct Marks;
  std::unique_ptr<Marks> marks_;
};

}  // namespace gputrain::device
