#include "warmup.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"

namespace gputrain::optim {

void WarmupSpec::describe(config::Description<WarmupSpec>& d) { describe_warmup(d); }

void DecaySpec::describe(config::Description<DecaySpec>& d) { describe_decay(d); }

void WholeDecaySpec::describe(config::Description<WholeDecaySpec>& d) { describe_whole_decay(d); }

Warmup::Warmup(const WarmupSpec& spec, const ScheduleContext& context)
    : peak_(context.peak_lr), steps_(context.to_steps(spec.warmup, "warmup")), start_(spec.warmup_lr) {
  if (start_ && spec.warmup.value == 0)
    throw Error(ExitCode::usage, {.what = "there is no warm-up that could begin at a rate",
                                  .where = "lr_scheduler.warmup_lr",
                                  .hint = "add lr_scheduler.warmup, such as 5ep, or leave warmup_lr out"});
}

double Warmup::lr(int64_t step) const {
  if (step >= steps_) return peak_;
  const auto done = static_cast<double>(step), all = static_cast<double>(steps_);
  return start_ ? *start_ + (peak_ - *start_) * (done / all) : peak_ * ((done + 1) / (all + 1));
}

std::string Warmup::then(const std::string& curve) const {
  if (steps_ == 0) return curve;
  return fmt::format("warmup {}{} then {}", steps_, start_ ? fmt::format(" from {}", *start_) : "", curve);
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

DecayingSchedule::DecayingSchedule(const WholeDecaySpec& spec, const ScheduleContext& context, std::string name)
    : warmup_(spec, context),
      min_lr_(spec.min_lr),
      begin_(spec.warmup_prefix ? warmup_.steps() : 0),
      end_(context.total_steps),
      cooldown_(context.to_steps(spec.cooldown, "cooldown")),
      name_(std::move(name)) {
  check_has_end(context, name_);
  check_floor(min_lr_, warmup_.peak());
  if (cooldown_ > 0 && warmup_.steps() + cooldown_ > end_)
    throw Error(ExitCode::usage,
                {.what = fmt::format("a warm-up of {} steps and a cooldown of {} do not fit in {} steps",
                                     warmup_.steps(), cooldown_, end_),
                 .where = "lr_scheduler.cooldown",
                 .hint = "shorten lr_scheduler.warmup or lr_scheduler.cooldown"});
  end_ -= cooldown_;
}

double DecayingSchedule::lr(int64_t step) const {
  if (step < warmup_.steps()) return warmup_.lr(step);
  const auto decay_steps = static_cast<double>(std::max<int64_t>(end_ - begin_, 1));
  const double part = std::min(static_cast<double>(step - begin_) / decay_steps, 1.0);
  return min_lr_ + (warmup_.peak() - min_lr_) * share_left(part);
}

std::string DecayingSchedule::describe() const {
  return warmup_.then(
      fmt::format("{} to {}{}", name_, min_lr_, cooldown_ > 0 ? fmt::format(", which stays for {}", cooldown_) : ""));
}

}  // namespace gputrain::optim
