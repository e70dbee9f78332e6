#include "warmup.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"

namespace gputrain::optim {
namespace {

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

}  // namespace

void WarmupSpec::describe(config::Description<WarmupSpec>& d) { describe_warmup(d); }

void DecaySpec::describe(config::Description<DecaySpec>& d) {
  describe_warmup(d);
  d.key("min_lr", &DecaySpec::min_lr, "learning rate at the end")
      .at_least(0)
      .aliases({"final_lr", "alpha_f", "eta_min", "lr_end"});
}

double warmup_share(int64_t step, int64_t warmup) {
  return step < warmup ? static_cast<double>(step + 1) / static_cast<double>(warmup + 1) : 1;
}

DecayingSchedule::DecayingSchedule(const DecaySpec& spec, const ScheduleContext& context, std::string name)
    : peak_lr_(context.peak_lr),
      min_lr_(spec.min_lr),
      warmup_(context.to_steps(spec.warmup, "warmup")),
      total_(context.total_steps),
      name_(std::move(name)) {
  if (total_ == INT64_MAX) {
    throw Error(ExitCode::usage, {.what = "the learning rate would never decay: a run that only train.max_time ends "
                                          "has no known last step",
                                  .where = "lr_scheduler.type: " + name_,
                                  .hint = "add train.max_steps, max_epochs or max_tokens, or use type: constant"});
  }
  if (min_lr_ > peak_lr_) {
    throw Error(ExitCode::usage, {.what = fmt::format("min_lr {} is above the peak rate {}", min_lr_, peak_lr_),
                                  .where = "lr_scheduler.min_lr",
                                  .hint = "lower lr_scheduler.min_lr or raise optimizer.lr"});
  }
}

double DecayingSchedule::lr(int64_t step) const {
  if (step < warmup_) return peak_lr_ * warmup_share(step, warmup_);
  const auto decay_steps = static_cast<double>(std::max<int64_t>(total_ - warmup_, 1));
  const double part = std::min(static_cast<double>(step - warmup_) / decay_steps, 1.0);
  return min_lr_ + (peak_lr_ - min_lr_) * share_left(part);
}

std::string DecayingSchedule::describe() const {
  const std::string decay = fmt::format("{} to {}", name_, min_lr_);
  return warmup_ > 0 ? fmt::format("warmup {} then {}", warmup_, decay) : decay;
}

}  // namespace gputrain::optim
