// Times stretches of work on a device without making it wait: on a GPU by events that it passes, else by the clock.
#pragma once

#include <memory>
#include <vector>

#include <c10/core/Device.h>

namespace gputrain::device {

class StepClock {
 public:
  explicit StepClock(c10::Device device);
  ~StepClock();

  /// Behind everything that this thread has queued on its current stream.
  void mark();
  /// Between each mark and the next one; waits for the device.
  std::vector<double> seconds() const;

 private:
  struct Marks;
  std::unique_ptr<Marks> marks_;
};

}  // namespace gputrain::device
