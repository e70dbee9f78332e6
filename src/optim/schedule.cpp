#include "gputrain/optim/schedule.hpp"

#include <cmath>

namespace gputrain::optim {

Schedule::~Schedule() = default;

double lr_at(const Schedule& schedule, double step) {
  const double whole = std::floor(step);
  const double lr = schedule.lr(static_cast<int64_t>(whole));
  return step == whole ? lr : std::lerp(lr, schedule.lr(static_cast<int64_t>(whole) + 1), step - whole);
}

ScheduleCatalog& schedules() {
  static ScheduleCatalog catalog("lr_scheduler");
  return catalog;
}

}  // namespace gputrain::optim
