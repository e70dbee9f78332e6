// Steps down at milestones, as torch.optim.lr_scheduler.MultiStepLR. Milestones count from the start of training.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "../warmup.hpp"

namespace gputrain::optim {
namespace {

struct MultiStepSpec : WarmupSpec {
  std::vector<config::Length> milestones;
  double gamma = 0.1;

  static void describe(config::Description<MultiStepSpec>& d) {
    describe_warmup(d);
    d.key("milestones", &MultiStepSpec::milestones, "lengths from the start of training after which the rate falls")
        .required()
        .aliases({"lr_milestones", "lr_steps"});
    d.key("gamma", &MultiStepSpec::gamma, "factor of the rate at each milestone").above(0).aliases({"lr_gamma"});
  }
};

class MultiStepSchedule final : public Schedule {
 public:
  MultiStepSchedule(const MultiStepSpec& spec, const ScheduleContext& context)
      : warmup_(spec, context), gamma_(spec.gamma) {
    for (const config::Length& milestone : spec.milestones)
      milestones_.push_back(context.to_steps(milestone, "milestones"));
    std::ranges::sort(milestones_);
  }

  double lr(int64_t step) const override {
    const auto passed = std::ranges::upper_bound(milestones_, step) - milestones_.begin();
    return warmup_.lr(step) * std::pow(gamma_, static_cast<double>(passed));
  }

  std::string describe() const override {
    return warmup_.then(fmt::format("times {} at {}", gamma_, fmt::join(milestones_, ", ")));
  }

 private:
  Warmup warmup_;
  double gamma_;
  std::vector<int64_t> milestones_;
};

const config::Registered<MultiStepSchedule, MultiStepSpec> registered_multistep{schedules(), "multistep",
                                                                                "falls by a factor at each milestone"};

}  // namespace
}  // namespace gputrain::optim
