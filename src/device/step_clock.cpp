#include "gputrain/device/step_clock.hpp"

#include <chrono>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace gputrain::device {

struct StepClock::Marks {
  c10::Device device;
  std::vector<c10::Event> events;                              // on a GPU
  std::vector<std::chrono::steady_clock::time_point> moments;  // on a CPU
};

StepClock::StepClock(c10::Device device) : marks_(std::make_unique<Marks>(Marks{device, {}, {}})) {}
StepClock::~StepClock() = default;

void StepClock::mark() {
  if (marks_->device.is_cpu()) {
    marks_->moments.push_back(std::chrono::steady_clock::now());
    return;
  }
  const c10::impl::VirtualGuardImpl guard(marks_->device.type());
  auto& event = marks_->events.emplace_back(marks_->device.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(guard.getStream(marks_->device));
}

std::vector<double> StepClock::seconds() const {
  std::vector<double> seconds;
  const auto& [device, events, moments] = *marks_;
  for (size_t i = 1; i < moments.size(); ++i) {
    seconds.push_back(std::chrono::duration<double>(moments[i] - moments[i - 1]).count());
  }
  if (!events.empty()) events.back().synchronize();
  for (size_t i = 1; i < events.size(); ++i) seconds.push_back(events[i - 1].elapsedTime(events[i]) / 1e3);
  return seconds;
}

}  // namespace gputrain::device
