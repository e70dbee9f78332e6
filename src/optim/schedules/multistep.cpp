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

struct MultiStepSpec {
  config::Length warmup;
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
      : peak_lr_(context.peak_lr), gamma_(spec.gamma), warmup_(context.to_steps(spec.warmup, "warmup")) {
    for (const config::Length& milestone : spec.milestones)
      milestones_.push_back(context.to_steps(milestone, "milestones"));
    std::ranges::sort(milestones_);
  }

  double lr(int64_t step) const override {
    const auto passed = std::ranges::upper_bound(milestones_, step) - milestones_.begin();
    return peak_lr_ * warmup_share(step, warmup_) * std::pow(gamma_, static_cast<double>(passed));
  }

  std::string describe() const override {
    return after_warmup(warmup_, fmt::format("times {} at {}", gamma_, fmt::join(milestones_, ", ")));
  }

 private:
  double peak_lr_, gamma_;
  int64_t warmup_;
  std::vector<int64_t> milestones_;
};

const config::Registered<MultiStepSchedule, MultiStepSpec> registered_multistep{schedules(), "multistep",
                                                                                "falls by a factor at each milestone"};

}  // namespace
}  // namespace gputrain::optim
