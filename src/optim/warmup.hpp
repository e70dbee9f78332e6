// Shared by the curves: a warm-up, then a decay from the peak to a floor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gputrain/optim/schedule.hpp"

namespace gputrain::optim {

struct WarmupSpec {
  config::Length warmup;
  std::optional<double> warmup_lr;

  static void describe(config::Description<WarmupSpec>& d);
};

struct DecaySpec : WarmupSpec {
  double min_lr = 0;

  static void describe(config::Description<DecaySpec>& d);
};

/// Keys of a decay that fills the training.
struct WholeDecaySpec : DecaySpec {
  bool warmup_prefix = true;
  config::Length cooldown;

  static void describe(config::Description<WholeDecaySpec>& d);
};

template <class Spec>
void describe_warmup(config::Description<Spec>& d) {
  d.key(
       "warmup", &Spec::warmup,
       "length over which the learning rate rises to its peak; steps are those of the global batch that training began "
       "with")
      .at_least(0)
      .aliases({"warmup_steps", "warmup_iters", "num_warmup_steps"})
      .aliases("warmup_epochs", config::epochs_of_count)
      .aliases("warmup_ratio", config::percent_of_ratio);
  d.key("warmup_lr", &Spec::warmup_lr,
        "rate of the first step of the warm-up; null: the part of the peak by which each of its steps rises")
      .at_least(0)
      .aliases({"warmup_lr_init", "lr_start"});
}

template <class Spec>
void describe_decay(config::Description<Spec>& d) {
  describe_warmup(d);
  d.key("min_lr", &Spec::min_lr, "learning rate at the end")
      .at_least(0)
      .aliases({"final_lr", "alpha_f", "eta_min", "lr_end"});
}

template <class Spec>
void describe_whole_decay(config::Description<Spec>& d) {
  describe_decay(d);
  d.key("warmup_prefix", &Spec::warmup_prefix,
        "the curve begins after the warm-up; false: at the start of training, and the warm-up hides its beginning");
  d.key("cooldown", &Spec::cooldown, "length at the end of training for which the rate stays at min_lr")
      .at_least(0)
      .aliases("cooldown_epochs", config::epochs_of_count);
}

/// Linear rise to the peak.
class Warmup {
 public:
  Warmup(const WarmupSpec& spec, const ScheduleContext& context);

  int64_t steps() const noexcept { return steps_; }
  double peak() const noexcept { return peak_; }
  /// Returns the rate in the warm-up; the peak from step `steps()` on.
  double lr(int64_t step) const;
  /// Returns "warmup 700 then <curve>", or "<curve>" without a warm-up.
  std::string then(const std::string& curve) const;

 private:
  double peak_;
  int64_t steps_;
  std::optional<double> start_;
};

/// Throws Error(usage) if the last step is unknown, for a curve `name` that ends there.
void check_has_end(const ScheduleContext& context, const std::string& name);
/// Throws Error(usage) if the floor is above the peak.
void check_floor(double min_lr, double peak_lr);

/// A warm-up, then a decay from the peak to `min_lr` along a curve; constant afterwards.
class DecayingSchedule : public Schedule {
 public:
  DecayingSchedule(const WholeDecaySpec& spec, const ScheduleContext& context, std::string name);

  double lr(int64_t step) const final;
  std::string describe() const final;

 protected:
  /// Returns the remaining share of the way from floor to peak after `part` of the decay, in [0, 1]: 1 at 0, 0 at 1.
  virtual double share_left(double part) const = 0;

 private:
  Warmup warmup_;
  double min_lr_;
  int64_t begin_, end_, cooldown_;
  std::string name_;
};

}  // namespace gputrain::optim
