// A power of the remaining share of training, as in transformers' get_polynomial_decay_schedule_with_warmup.
#include <cmath>

#include "../warmup.hpp"

namespace gputrain::optim {
namespace {

struct PolynomialSpec : WholeDecaySpec {
  double power = 1;

  static void describe(config::Description<PolynomialSpec>& d) {
    describe_whole_decay(d);
    d.key("power", &PolynomialSpec::power, "exponent; 1 is a straight line, 2 falls faster at first").above(0);
  }
};

class PolynomialSchedule final : public DecayingSchedule {
 public:
  PolynomialSchedule(const PolynomialSpec& spec, const ScheduleContext& context)
      : DecayingSchedule(spec, context, "polynomial"), power_(spec.power) {}

 protected:
  double share_left(double part) const override { return std::pow(1 - part, power_); }

 private:
  double power_;
};

const config::Registered<PolynomialSchedule, PolynomialSpec> registered_polynomial{
    schedules(), "polynomial", "a power of the remaining share of training, from the peak to min_lr"};

}  // namespace
}  // namespace gputrain::optim
