// One over the root of the step: Vaswani et al., "Attention is all you need", NeurIPS 2017, in the form of Zhai et al.,
// "Scaling vision transformers", CVPR 2022, and of transformers' get_inverse_sqrt_schedule.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "../warmup.hpp"

namespace gputrain::optim {
namespace {

struct InverseSqrtSpec : WarmupSpec {
  std::optional<config::Length> timescale;

  static void describe(config::Description<InverseSqrtSpec>& d) {
    describe_warmup(d);
    d.key("timescale", &InverseSqrtSpec::timescale,
          "length after the warm-up at which the square of the rate is half; null: that of the warm-up, or 10000 "
          "without "
          "one")
        .above(0);
  }
};

class InverseSqrtSchedule final : public Schedule {
 public:
  InverseSqrtSchedule(const InverseSqrtSpec& spec, const ScheduleContext& context)
      : warmup_(spec, context), timescale_(warmup_.steps() > 0 ? warmup_.steps() : 10'000) {
    if (spec.timescale) timescale_ = std::max<int64_t>(1, context.to_steps(*spec.timescale, "timescale"));
  }

  double lr(int64_t step) const override {
    if (step < warmup_.steps()) return warmup_.lr(step);
    return warmup_.peak() /
           std::sqrt(1 + static_cast<double>(step - warmup_.steps()) / static_cast<double>(timescale_));
  }

  std::string describe() const override { return warmup_.then(fmt::format("inverse_sqrt over {}", timescale_)); }

 private:
  Warmup warmup_;
  int64_t timescale_;
};

const config::Registered<InverseSqrtSchedule, InverseSqrtSpec> registered_inverse_sqrt{
    schedules(), "inverse_sqrt", "one over the root of the step; needs no last step"};

}  // namespace
}  // namespace gputrain::optim
