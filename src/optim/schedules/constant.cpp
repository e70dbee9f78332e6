#include <string>

#include <fmt/format.h>

#include "../warmup.hpp"

namespace gputrain::optim {
namespace {

class ConstantSchedule final : public Schedule {
 public:
  ConstantSchedule(const WarmupSpec& spec, const ScheduleContext& context)
      : peak_lr_(context.peak_lr), warmup_(context.to_steps(spec.warmup, "warmup")) {}

  double lr(int64_t step) const override { return peak_lr_ * warmup_share(step, warmup_); }

  std::string describe() const override {
    return warmup_ > 0 ? fmt::format("warmup {} then constant", warmup_) : "constant";
  }

 private:
  double peak_lr_;
  int64_t warmup_;
};

const config::Registered<ConstantSchedule, WarmupSpec> registered_constant{schedules(), "constant",
                                                                           "the peak rate until the end"};

}  // namespace
}  // namespace gputrain::optim
