#include "gputrain/train/trainer.hpp"

#include <nlohmann/json.hpp>

namespace gputrain::train {

Hook::~Hook() = default;
nlohmann::json Hook::state() { return nullptr; }
void Hook::restore(const nlohmann::json&) {}

Outcome Trainer::run(Progress& progress) {
  for (Hook* hook : hooks_) hook->before_training(progress);
  Outcome outcome;
  if (!finished(progress)) parts_.feed.prefetch(wishes(progress, {}));
  while (!finished(progress)) {
    const Stopwatch watch;
    const Feed::Step feed = parts_.feed.next();
    const StepResult result = parts_.step.run(feed, parts_.lr(progress.step));
    advance(progress, feed);
    const bool last = finished(progress) || feed.agreed.stop_signal != 0 || feed.agreed.wishes.back();
    if (!last) parts_.feed.prefetch(wishes(progress, feed.agreed.wishes));
    progress.train_seconds += watch.seconds();
    for (size_t i = 0; i < hooks_.size(); ++i) hooks_[i]->after_step(progress, result, feed.agreed.wishes[i]);
    if (!last) continue;
    if (feed.agreed.stop_signal != 0) outcome = {Outcome::Kind::stopped, feed.agreed.stop_signal};
    else if (!finished(progress)) outcome = {Outcome::Kind::time_is_up, 0};
    break;
  }
  const bool stopped = outcome.kind == Outcome::Kind::stopped;
  for (Hook* hook : hooks_) hook->after_training(progress, stopped);
  return outcome;
}

/// One wish per hook, and last whether the time limit has passed. A hook about to act on an earlier wish has none.
std::vector<bool> Trainer::wishes(const Progress& progress, const std::vector<bool>& granted) const {
  std::vector<bool> wishes;
  for (size_t i = 0; i < hooks_.size(); ++i) {
    const bool acts_now = i < granted.size() && granted[i];
    wishes.push_back(!acts_now && hooks_[i]->is_due());
  }
  wishes.push_back(parts_.plan.max_seconds > 0 && progress.train_seconds >= parts_.plan.max_seconds);
  return wishes;
}

void Trainer::advance(Progress& progress, const Feed::Step& feed) {
  ++progress.step;
  progress.samples += feed.agreed.samples;
  if (parts_.plan.tokens_per_step > 0) progress.tokens += feed.agreed.weight;
}

}  // namespace gputrain::train
