// Falls when evaluations stop improving, as torch.optim.lr_scheduler.ReduceLROnPlateau. Whether larger or smaller
// values are better is known of each metric.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "../warmup.hpp"

namespace gputrain::optim {
namespace {

struct PlateauSpec : WarmupSpec {
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  std::string threshold_mode = "rel";
  int64_t cooldown = 0;
  double min_lr = 0;

  static void describe(config::Description<PlateauSpec>& d) {
    d.summary("falls by a factor when evaluations of checkpoint.metric stop improving");
    describe_warmup(d);
    d.key("factor", &PlateauSpec::factor, "factor of the rate at each fall").above(0).below(1);
    d.key("patience", &PlateauSpec::patience, "evaluations in a row without improvement that are borne").at_least(0);
    d.key("threshold", &PlateauSpec::threshold, "an evaluation is better if it improves by more than this").at_least(0);
    d.key("threshold_mode", &PlateauSpec::threshold_mode,
          "what threshold is: a share of the best value, or a difference")
        .choices({"rel", "abs"});
    d.key("cooldown", &PlateauSpec::cooldown, "evaluations after a fall that are not counted").at_least(0);
    d.key("min_lr", &PlateauSpec::min_lr, "lowest rate").at_least(0);
  }
};

class PlateauSchedule final : public Schedule {
 public:
  PlateauSchedule(const PlateauSpec& spec, const ScheduleContext& context) : spec_(spec), warmup_(spec, context) {
    check_floor(spec.min_lr, warmup_.peak());
  }

  double lr(int64_t step) const override { return warmup_.lr(step); }

  static CurveAbilities abilities() { return {.follows_evaluations = true}; }

  void follow(const Evaluated& evaluated, Feedback& feedback) const override {
    if (feedback.metric != evaluated.metric) feedback.best.reset(), feedback.bad = 0;
    feedback.metric = evaluated.metric;
    if (is_better(evaluated, feedback)) {
      feedback.best = evaluated.value;
      feedback.bad = 0;
    } else {
      ++feedback.bad;
    }
    if (feedback.cooldown > 0) {
      --feedback.cooldown;
      feedback.bad = 0;
    }
    if (feedback.bad <= spec_.patience) return;
    feedback.cooldown = spec_.cooldown;
    feedback.bad = 0;
    const double lower = std::max(feedback.factor * spec_.factor, spec_.min_lr / warmup_.peak());
    constexpr double kLeastFall = 1e-8;  // least fall of the rate, as in PyTorch
    if ((feedback.factor - lower) * warmup_.peak() > kLeastFall) feedback.factor = lower;
  }

  std::string describe() const override {
    return warmup_.then(fmt::format("times {} after {} evaluations without gain", spec_.factor, spec_.patience + 1));
  }

 private:
  /// Returns whether an evaluation is better. False for what is not finite, whatever came before.
  bool is_better(const Evaluated& evaluated, const Feedback& feedback) const {
    const double value = evaluated.value;
    if (!std::isfinite(value)) return false;
    if (!feedback.best) return true;
    const double sign = evaluated.smaller_is_better ? -1 : 1, best = *feedback.best;
    if (spec_.threshold_mode == "abs") return sign * value > sign * best + spec_.threshold;
    return sign * value > sign * best * (1 + sign * spec_.threshold);
  }

  PlateauSpec spec_;
  Warmup warmup_;
};

const config::Registered<PlateauSchedule, PlateauSpec> registered_plateau{
    schedules(), "plateau", "falls by a factor when evaluations stop improving"};

}  // namespace
}  // namespace gputrain::optim
