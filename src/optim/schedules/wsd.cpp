// Warmup-stable-decay: Hu et al., "MiniCPM: unveiling the potential of small language models with scalable training
// strategies", 2024. The decay 1-sqrt: Haegele et al., "Scaling laws and compute-optimal training beyond fixed training
// durations", NeurIPS 2024. Curves of transformers' get_wsd_schedule.
#include <cmath>
#include <numbers>
#include <string>

#include <fmt/format.h>

#include "../warmup.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::optim {
namespace {

struct WsdSpec : DecaySpec {
  config::Length decay{10, config::Length::Unit::percent};
  std::string decay_type = "cosine";

  static void describe(config::Description<WsdSpec>& d) {
    describe_decay(d);
    d.key("decay", &WsdSpec::decay,
          "length of the decay at the end of training; between it and the warm-up is the peak")
        .at_least(0)
        .aliases({"num_decay_steps", "decay_steps", "cooldown"});
    d.key("decay_type", &WsdSpec::decay_type, "curve of the decay").choices({"cosine", "linear", "1-sqrt"});
  }
};

class WsdSchedule final : public Schedule {
 public:
  WsdSchedule(const WsdSpec& spec, const ScheduleContext& context)
      : warmup_(spec, context),
        min_lr_(spec.min_lr),
        decay_(context.to_steps(spec.decay, "decay")),
        total_(context.total_steps),
        decay_type_(spec.decay_type) {
    check_has_end(context, "wsd");
    check_floor(min_lr_, warmup_.peak());
    if (warmup_.steps() + decay_ <= total_) return;
    throw Error(ExitCode::usage, {.what = fmt::format("a warm-up of {} steps and a decay of {} do not fit in {} steps",
                                                      warmup_.steps(), decay_, total_),
                                  .where = "lr_scheduler.decay",
                                  .hint = "shorten lr_scheduler.warmup or lr_scheduler.decay"});
  }

  double lr(int64_t step) const override {
    const int64_t begin = total_ - decay_;
    if (step < begin) return warmup_.lr(step);
    if (step >= total_) return min_lr_;
    const double part = static_cast<double>(step - begin) / static_cast<double>(decay_);
    return min_lr_ + (warmup_.peak() - min_lr_) * share_left(part);
  }

  std::string describe() const override {
    return warmup_.then(fmt::format("constant then {} to {} over {}", decay_type_, min_lr_, decay_));
  }

 private:
  double share_left(double part) const {
    if (decay_type_ == "linear") return 1 - part;
    if (decay_type_ == "1-sqrt") return 1 - std::sqrt(part);
    return 0.5 * (1 + std::cos(std::numbers::pi * part));
  }

  Warmup warmup_;
  double min_lr_;
  int64_t decay_, total_;
  std::string decay_type_;
};

const config::Registered<WsdSchedule, WsdSpec> registered_wsd{schedules(), "wsd",
                                                              "the peak rate, then a decay to min_lr near the end"};

}  // namespace
}  // namespace gputrain::optim
