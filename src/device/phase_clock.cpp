#include "gputrain/device/phase_clock.hpp"

#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace gputrain::device {

const char* name_of(Phase phase) noexcept {
  constexpr std::array<const char*, kPhases> kNames{"load",          "copy",      "forward", "backward",
                                                    "communication", "optimizer", "graph"};
  return kNames.at(static_cast<size_t>(phase));
}

void PhaseClock::enter(Phase phase) { mark(phase); }
void PhaseClock::leave() { mark(std::nullopt); }

void PhaseClock::mark(std::optional<Phase> phase) {
  if (paused_ > 0) return;
  Mark now{.phase = phase, .moment = std::chrono::steady_clock::now(), .event = {}};
  if (device_.is_cpu()) {
    if (last_ && last_->phase) add(*last_->phase, std::chrono::duration<double>(now.moment - last_->moment).count());
    last_ = std::move(now);
    return;
  }
  const c10::impl::VirtualGuardImpl guard(device_.type());
  if (idle_.empty()) {
    now.event.emplace(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  } else {
    now.event.emplace(std::move(idle_.back()));
    idle_.pop_back();
  }
  now.event->record(guard.getStream(device_));
  marks_.push_back(std::move(now));
}

PhaseTimes PhaseClock::take() {
  while (marks_.size() > 1 && marks_[1].event->query()) {
    if (marks_[0].phase) add(*marks_[0].phase, marks_[0].event->elapsedTime(*marks_[1].event) / 1e3);
    idle_.push_back(std::move(*marks_[0].event));
    marks_.pop_front();
  }
  return std::exchange(times_, {});
}

}  // namespace gputrain::device
