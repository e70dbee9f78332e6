#include "gputrain/optim/schedule.hpp"

namespace gputrain::optim {

Schedule::~Schedule() = default;

ScheduleCatalog& schedules() {
  static ScheduleCatalog catalog("lr_scheduler");
  return catalog;
}

}  // namespace gputrain::optim
