// Shared by the curves: a warm-up, then a decay from the peak to a floor.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/optim/schedule.hpp"

namespace gputrain::optim {

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
}

template <class Spec>
void describe_decay(config::Description<Spec>& d) {
  describe_warmup(d);
  d.key("min_lr", &Spec::min_lr, "learning rate at the end")
      .at_least(0)
      .aliases({"final_lr", "alpha_f", "eta_min", "lr_end"});
}

struct WarmupSpec {
  config::Length warmup;

  static void describe(config::Description<WarmupSpec>& d);
};

struct DecaySpec {
  config::Length warmup;
  double min_lr = 0;

  static void describe(config::Description<DecaySpec>& d);
};

/// Returns the share of the peak in the warm-up; 1 from step `warmup` on.
double warmup_share(int64_t step, int64_t warmup);

/// Throws Error(usage) if the last step is unknown, for a curve `name` that ends there.
void check_has_end(const ScheduleContext& context, const std::string& name);
/// Throws Error(usage) if the floor is above the peak.
void check_floor(double min_lr, double peak_lr);

/// Returns "warmup 700 then <curve>", or "<curve>" without a warm-up.
std::string after_warmup(int64_t warmup, const std::string& curve);

/// A warm-up, then a decay from the peak to `min_lr` along a curve; constant afterwards.
class DecayingSchedule : public Schedule {
 public:
  DecayingSchedule(const DecaySpec& spec, const ScheduleContext& context, std::string name);

  double lr(int64_t step) const final;
  std::string describe() const final;

 protected:
  /// Returns the remaining share of the way from floor to peak after `part` of the decay, in [0, 1]: 1 at 0, 0 at 1.
  virtual double share_left(double part) const = 0;

 private:
  double peak_lr_, min_lr_;
  int64_t warmup_, total_;
  std::string name_;
};

}  // namespace gputrain::optim
