#include "gputrain/estimate/interruptions.hpp"

#include <algorithm>
#include <cmath>

#include "gputrain/train/save_pace.hpp"

namespace gputrain::app {

double expected_seconds(double training_seconds, double save_interval, const Interruptions& interruptions) {
  const auto& [between, save, restart] = interruptions;
  const double segments = training_seconds / save_interval;
  if (std::isinf(between)) return segments * (save_interval + save);
  return segments * between * std::exp(restart / between) * std::expm1((save_interval + save) / between);
}

InterruptedTime time_with(const Interruptions& interruptions, double training_seconds) {
  constexpr double kForever = 1e12;
  const double save = interruptions.save_seconds, between = std::min(interruptions.between_seconds, kForever);
  InterruptedTime time{.save_interval = train::best_save_interval(save, between),
                       .young_interval = train::young_save_interval(save, between)};
  time.total = expected_seconds(training_seconds, time.save_interval, interruptions);
  time.interruptions = time.total / interruptions.between_seconds;
  return time;
}

}  // namespace gputrain::app
