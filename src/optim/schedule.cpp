#include "gputrain/optim/schedule.hpp"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "gputrain/optim/spec.hpp"

namespace gputrain::optim {

Schedule::~Schedule() = default;

double lr_at(const Schedule& schedule, double step) {
  const double whole = std::floor(step);
  const double lr = schedule.lr(static_cast<int64_t>(whole));
  return step == whole ? lr : std::lerp(lr, schedule.lr(static_cast<int64_t>(whole) + 1), step - whole);
}

namespace {

/// Curve that is read only at the begin of each interval.
class SteppedSchedule final : public Schedule {
 public:
  SteppedSchedule(std::unique_ptr<Schedule> curve, int64_t interval) : curve_(std::move(curve)), interval_(interval) {}

  double lr(int64_t step) const override { return curve_->lr(step / interval_ * interval_); }
  void follow(const Evaluated& evaluated, Feedback& feedback) const override { curve_->follow(evaluated, feedback); }
  std::string describe() const override { return curve_->describe() + fmt::format(", changed every {}", interval_); }

 private:
  std::unique_ptr<Schedule> curve_;
  int64_t interval_;
};

}  // namespace

std::unique_ptr<Schedule> make_schedule(const LrSchedulerSpec& spec, const ScheduleContext& context) {
  auto curve = schedules().make(spec.type, context);
  const int64_t interval = spec.interval ? context.to_steps(*spec.interval, "interval") : 1;
  return interval > 1 ? std::make_unique<SteppedSchedule>(std::move(curve), interval) : std::move(curve);
}

ScheduleCatalog& schedules() {
  static ScheduleCatalog catalog("lr_scheduler");
  return catalog;
}

}  // namespace gputrain::optim
