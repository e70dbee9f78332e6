// What the curves share: a warm-up, then a decay from the peak to a floor.
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

/// The share of the peak during warm-up; 1 from step `warmup` on.
double warmup_share(int64_t step, int64_t warmup);

/// Warms up, then falls from the peak to `min_lr` along a shape, and stays there.
class DecayingSchedule : public Schedule {
 public:
  DecayingSchedule(const DecaySpec& spec, const Horizon& horizon, std::string name);

  double lr(int64_t step) const final;
  std::string describe() const final;

 protected:
  /// What is left between peak and floor after a part in [0, 1] of the decay: 1 at 0, 0 at 1.
  virtual double share_left(double part) const = 0;

 private:
  double peak_lr_, min_lr_;
  int64_t warmup_, total_;
  std::string name_;
};

}  // namespace gputrain::optim
