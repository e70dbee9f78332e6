#include "gputrain/device/run_ahead.hpp"

#include <chrono>
#include <thread>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace gputrain::device {

void RunAhead::mark() {
  if (device_.is_cpu()) return;
  ends_.emplace_back(device_.type()).record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void RunAhead::wait(size_t steps, const std::function<void(size_t)>& look) {
  constexpr std::chrono::microseconds kBetweenLooks{
      50};  // sleeps, because a spinning thread takes a core from the data loader
  while (ends_.size() > steps) {
    while (!ends_.front().query()) {
      look(ends_.size() - 1);
      std::this_thread::sleep_for(kBetweenLooks);
    }
    look(ends_.size() - 1);  // a step that was aborted on the device ends too
    ends_.pop_front();
  }
}

}  // namespace gputrain::device
