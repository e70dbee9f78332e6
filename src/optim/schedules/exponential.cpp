// Falls by a factor after each length: torch.optim.lr_scheduler.ExponentialLR, whose step_size is 1, and StepLR.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "../warmup.hpp"

namespace gputrain::optim {
namespace {

struct ExponentialSpec : WarmupSpec {
  double gamma = 0.95;
  config::Length step_size{1, config::Length::Unit::epochs};

  static void describe(config::Description<ExponentialSpec>& d) {
    describe_warmup(d);
    d.key("gamma", &ExponentialSpec::gamma, "factor of the rate after each step_size")
        .above(0)
        .range(0, 1)
        .aliases({"lr_gamma", "decay_rate"});
    d.key("step_size", &ExponentialSpec::step_size,
          "length after which the rate falls, again and again from the start of training; 1: at each step")
        .above(0)
        .aliases({"lr_step_size"})
        .aliases("decay_epochs", config::epochs_of_count);
  }
};

class ExponentialSchedule final : public Schedule {
 public:
  ExponentialSchedule(const ExponentialSpec& spec, const ScheduleContext& context)
      : warmup_(spec, context),
        gamma_(spec.gamma),
        step_size_(std::max<int64_t>(1, context.to_steps(spec.step_size, "step_size"))) {}

  double lr(int64_t step) const override {
    return warmup_.lr(step) * std::pow(gamma_, static_cast<double>(step / step_size_));
  }

  std::string describe() const override { return warmup_.then(fmt::format("times {} every {}", gamma_, step_size_)); }

 private:
  Warmup warmup_;
  double gamma_;
  int64_t step_size_;
};

const config::Registered<ExponentialSchedule, ExponentialSpec> registered_exponential{
    schedules(), "exponential", "falls by a factor after each epoch or other length"};

}  // namespace
}  // namespace gputrain::optim
