#include <string>

#include "../warmup.hpp"

namespace gputrain::optim {
namespace {

class ConstantSchedule final : public Schedule {
 public:
  ConstantSchedule(const WarmupSpec& spec, const ScheduleContext& context) : warmup_(spec, context) {}

  double lr(int64_t step) const override { return warmup_.lr(step); }

  std::string describe() const override { return warmup_.then("constant"); }

 private:
  Warmup warmup_;
};

const config::Registered<ConstantSchedule, WarmupSpec> registered_constant{schedules(), "constant",
                                                                           "the peak rate until the end"};

}  // namespace
}  // namespace gputrain::optim
