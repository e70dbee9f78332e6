// One cycle: Smith and Topin, "Super-convergence: very fast training of neural networks using large learning rates",
// 2017; the rates of torch.optim.lr_scheduler.OneCycleLR. Momentum stays as it is.
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "../warmup.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::optim {
namespace {

struct OneCycleSpec {
  config::Length warmup{30, config::Length::Unit::percent};
  double div_factor = 25, final_div_factor = 1e4;
  std::string anneal_strategy = "cos";
  bool three_phase = false;

  static void describe(config::Description<OneCycleSpec>& d) {
    d.key("warmup", &OneCycleSpec::warmup, "length over which the learning rate rises to its peak")
        .at_least(0)
        .aliases({"warmup_steps", "warmup_iters", "num_warmup_steps"})
        .aliases("warmup_epochs", config::epochs_of_count)
        .aliases("warmup_ratio", config::percent_of_ratio)
        .aliases("pct_start", config::percent_of_ratio);
    d.key("div_factor", &OneCycleSpec::div_factor, "the first rate is the peak divided by this").at_least(1);
    d.key("final_div_factor", &OneCycleSpec::final_div_factor, "the last rate is the first divided by this").above(0);
    d.key("anneal_strategy", &OneCycleSpec::anneal_strategy, "curve up and down").choices({"cos", "linear"});
    d.key("three_phase", &OneCycleSpec::three_phase,
          "falls to the first rate as fast as it rose, then to the last rate, instead of to the last rate at once");
  }
};

class OneCycleSchedule final : public Schedule {
 public:
  OneCycleSchedule(const OneCycleSpec& spec, const ScheduleContext& context)
      : first_lr_(context.peak_lr / spec.div_factor),
        last_lr_(first_lr_ / spec.final_div_factor),
        is_linear_(spec.anneal_strategy == "linear") {
    check_has_end(context, "onecycle");
    const int64_t warmup = context.to_steps(spec.warmup, "warmup"), total = context.total_steps;
    const int64_t phases = spec.three_phase ? 2 : 1;
    if (phases * warmup > total) {
      throw Error(ExitCode::usage,
                  {.what = spec.three_phase
                               ? fmt::format("{} steps up and {} down do not fit in {} steps", warmup, warmup, total)
                               : fmt::format("a warm-up of {} steps does not fit in {}", warmup, total),
                   .where = "lr_scheduler.warmup",
                   .hint = spec.three_phase ? "at most 50%, or three_phase: false" : "at most 100%"});
    }
    phases_.push_back({.end = warmup - 1, .from = first_lr_, .to = context.peak_lr});
    if (spec.three_phase) phases_.push_back({.end = 2 * warmup - 2, .from = context.peak_lr, .to = first_lr_});
    phases_.push_back({.end = total - 1, .from = phases_.back().to, .to = last_lr_});
    warmup_ = warmup;
  }

  double lr(int64_t step) const override {
    int64_t begin = 0;
    for (const Phase& phase : phases_) {
      if (step <= phase.end) {
        if (phase.end <= begin) return phase.to;
        return between(phase, static_cast<double>(step - begin) / static_cast<double>(phase.end - begin));
      }
      begin = phase.end;
    }
    return last_lr_;
  }

  std::string describe() const override {
    return fmt::format("{} up over {} then down to {:.3g}{}", is_linear_ ? "linear" : "cosine", warmup_, last_lr_,
                       phases_.size() > 2 ? " in two phases" : "");
  }

 private:
  struct Phase {
    int64_t end;
    double from, to;
  };

  double between(const Phase& phase, double part) const {
    if (is_linear_) return phase.from + (phase.to - phase.from) * part;
    return phase.to + (phase.from - phase.to) * 0.5 * (1 + std::cos(std::numbers::pi * part));
  }

  double first_lr_, last_lr_;
  bool is_linear_;
  int64_t warmup_ = 0;
  std::vector<Phase> phases_;
};

const config::Registered<OneCycleSchedule, OneCycleSpec> registered_onecycle{
    schedules(), "onecycle", "up to the peak, then down to almost nothing"};

}  // namespace
}  // namespace gputrain::optim
