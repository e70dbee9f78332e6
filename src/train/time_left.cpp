#include "gputrain/train/time_left.hpp"

#include <algorithm>
#include <cmath>

namespace gputrain::train {
namespace {

/// Returns how often something recurs from `step` on, and at the end, in steps that take so many seconds.
double times_left(const Cadence& cadence, int64_t step, int64_t end, double training) {
  const bool ends_with_it = cadence.at_step(end);
  const auto by_steps = static_cast<double>(cadence.times_in(step - 1, end));
  const double by_clock = cadence.seconds > 0 ? std::floor(training / cadence.seconds) : 0;
  return by_steps + by_clock + (ends_with_it ? 0 : 1);
}

}  // namespace

void TimeLeft::Interruptions::note(double new_total) {
  if (new_total > total) {
    seconds += new_total - total;
    ++count;
  }
  total = new_total;
}

void TimeLeft::begin(const Progress& progress) {
  train_seconds_ = progress.train_seconds;
  samples_ = progress.usage.samples;
  tokens_ = progress.tokens;
  evaluations_.total = progress.eval_seconds;
  saves_.total = progress.save_seconds;
}

/// Averages over a tenth of the run, at least 50 steps. The first step prepares much and only counts until the second.
void TimeLeft::note_step(const Progress& progress) {
  constexpr int64_t kLeastSteps = 50;
  evaluations_.note(progress.eval_seconds);
  saves_.note(progress.save_seconds);
  const int64_t most = plan_.is_time_limited() ? kLeastSteps : std::max(kLeastSteps, plan_.total_steps / 10);
  const double share = 1 / static_cast<double>(std::clamp<int64_t>(steps_++, 1, most));
  const double seconds = progress.train_seconds - train_seconds_;
  seconds_per_step_ += share * (seconds - seconds_per_step_);
  samples_per_step_ += share * (static_cast<double>(progress.usage.samples - samples_) - samples_per_step_);
  tokens_per_step_ += share * (static_cast<double>(progress.tokens - tokens_) - tokens_per_step_);
  trained_ += seconds;
  train_seconds_ = progress.train_seconds;
  samples_ = progress.usage.samples;
  tokens_ = progress.tokens;
}

double TimeLeft::seconds(const Progress& progress) const {
  if (seconds_per_step_ <= 0) return 0;
  const double training = plan_.seconds_left(progress.step, progress.train_seconds, seconds_per_step_);
  const auto steps = static_cast<int64_t>(std::llround(training / seconds_per_step_));
  const int64_t end = std::min(plan_.total_steps, progress.step + steps);
  return training + evaluations_.mean() * times_left(plan_.eval, progress.step, end, training) +
         saves_left(progress, end, training);
}

/// Returns the seconds for saves. With an automatic interval they take as large a share of the time as before.
double TimeLeft::saves_left(const Progress& progress, int64_t end, double training) const {
  if (plan_.save.is_auto && trained_ > 0) return training / trained_ * saves_.seconds;
  return saves_.mean() * times_left(plan_.save, progress.step, end, training);
}

}  // namespace gputrain::train
