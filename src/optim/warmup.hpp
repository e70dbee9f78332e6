// Shared by the curves: a warm-up, then a decay from the peak to a floor.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/optim/schedule.hpp"

namespace gputrain::optim {

struct WarmupSpec {
  config::Length warmup;

  static void describe(config::Description<WarmupSpec>& d);
};

struct DecaySpec {
  config::Length warmup;
  double min_lr = 0;

  static void describe(config::Description<DecaySpec>& d);
};

/// Share of the peak in the warm-up; 1 from step `warmup` on.
double warmup_share(int64_t step, int64_t warmup);

/// A warm-up, then a decay from the peak to `min_lr` along a curve; constant afterwards.
class DecayingSchedule : public Schedule {
 public:
  DecayingSchedule(const DecaySpec& spec, const ScheduleContext& context, std::string name);

  double lr(int64_t step) const final;
  std::string describe() const final;

 protected:
  /// Remaining share of the way from floor to peak after `part` of the decay, in [0, 1]: 1 at 0, 0 at 1.
  virtual double share_left(double part) const = 0;

 private:
  double peak_lr_, min_lr_;
  int64_t warmup_, total_;
  std::string name_;
};

}  // namespace gputrain::optim
