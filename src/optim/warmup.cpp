#include "warmup.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"

namespace gputrain::optim {

void WarmupSpec::describe(config::Description<WarmupSpec>& d) { describe_warmup(d); }

void DecaySpec::describe(config::Description<DecaySpec>& d) { describe_decay(d); }

double warmup_share(int64_t step, int64_t warmup) {
  return step < warmup ? static_cast<double>(step + 1) / static_cast<double>(warmup + 1) : 1;
}

void check_has_end(const ScheduleContext& context, const std::string& name) {
  if (context.total_steps != INT64_MAX) return;
  throw Error(ExitCode::usage,
              {.what = "the learning rate would never decay: a run that only train.max_time ends has no "
                       "known last step",
               .where = "lr_scheduler.type: " + name,
               .hint = "add train.max_steps, max_epochs or max_tokens, or use type: constant"});
}

void check_floor(double min_lr, double peak_lr) {
  if (min_lr <= peak_lr) return;
  throw Error(ExitCode::usage, {.what = fmt::format("min_lr {} is above the peak rate {}", min_lr, peak_lr),
                                .where = "lr_scheduler.min_lr",
                                .hint = "lower lr_scheduler.min_lr or raise optimizer.lr"});
}

std::string after_warmup(int64_t warmup, const std::string& curve) {
  return warmup > 0 ? fmt::format("warmup {} then {}", warmup, curve) : curve;
}

DecayingSchedule::DecayingSchedule(const DecaySpec& spec, const ScheduleContext& context, std::string name)
    : peak_lr_(context.peak_lr),
      min_lr_(spec.min_lr),
      warmup_(context.to_steps(spec.warmup, "warmup")),
      total_(context.total_steps),
      name_(std::move(name)) {
  check_has_end(context, name_);
  check_floor(min_lr_, peak_lr_);
}

double DecayingSchedule::lr(int64_t step) const {
  if (step < warmup_) return peak_lr_ * warmup_share(step, warmup_);
  const auto decay_steps = static_cast<double>(std::max<int64_t>(total_ - warmup_, 1));
  const double part = std::min(static_cast<double>(step - warmup_) / decay_steps, 1.0);
  return min_lr_ + (peak_lr_ - min_lr_) * share_left(part);
}

std::string DecayingSchedule::describe() const {
  return after_warmup(warmup_, fmt::format("{} to {}", name_, min_lr_));
}

}  // namespace gputrain::optim
