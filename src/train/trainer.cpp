#include "gputrain/train/trainer.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "profile/profile_range.hpp"

namespace gputrain::train {

Hook::~Hook() = default;
nlohmann::json Hook::state() { return nullptr; }
void Hook::restore(const nlohmann::json&) {}

Outcome Trainer::run(Progress& progress) {
  for (Hook* hook : hooks_) hook->before_training(progress);
  Outcome outcome;
  if (!finished(progress)) prefetch(progress, {});
  while (!finished(progress)) {
    for (Hook* hook : hooks_) hook->before_step(progress);
    const Stopwatch watch;
    parts_.groups.enter("in step", progress.step + 1);
    if (parts_.clock != nullptr) parts_.clock->enter(device::Phase::communication);
    const StepPrefetcher::Step fetched = parts_.prefetcher.next();
    outcome.stop = fetched.agreed.stop;
    if (outcome.stop != Stop::none) break;
    const StepResult result = parts_.step.run(fetched, parts_.rates(progress));
    run_ahead_.mark();
    advance(progress, fetched);
    if (!finished(progress)) prefetch(progress, fetched.agreed.hook_requests);
    wait_for_device(progress, fetched.agreed.hook_requests);
    progress.train_seconds += watch.seconds();
    for (size_t i = 0; i < hooks_.size(); ++i) {
      outcome.stop = std::max(outcome.stop, hooks_[i]->after_step(progress, result, fetched.agreed.hook_requests[i]));
      if (outcome.stop == Stop::diverged) break;  // skip evaluation and save: the rollback discards this state
    }
    if (outcome.stop == Stop::none) outcome.stop = hold(progress);
    if (outcome.stop == Stop::none) continue;
    if (!finished(progress)) parts_.prefetcher.next();
    break;
  }
  for (Hook* hook : hooks_) {
    if (outcome.stop == Stop::diverged) break;
    outcome.stop = std::max(outcome.stop, hook->after_training(progress, outcome.is_preempted()));
  }
  return outcome;
}

/// Serves the hooks for as long as one of them holds training. Every rank must call.
Stop Trainer::hold(Progress& progress) {
  constexpr std::chrono::milliseconds kBetweenLooks{100};
  Stop stop = Stop::none;
  while (stop == Stop::none && std::ranges::any_of(hooks_, &Hook::is_holding)) {
    parts_.groups.enter("paused after step", progress.step);
    std::this_thread::sleep_for(kBetweenLooks);
    const StepConsensus agreed = parts_.prefetcher.agree(hook_requests({}));
    stop = agreed.stop;
    for (size_t i = 0; i < hooks_.size(); ++i)
      stop = std::max(stop, hooks_[i]->while_held(progress, agreed.hook_requests[i]));
  }
  return stop;
}

void Trainer::prefetch(const Progress& progress, const std::vector<bool>& granted) {
  parts_.groups.enter("reading the data of step", progress.step + 1);
  if (parts_.clock != nullptr) parts_.clock->enter(device::Phase::load);
  parts_.prefetcher.prefetch(hook_requests(granted));
  if (parts_.clock != nullptr) parts_.clock->leave();
}

/// Returns one wish per hook; a hook that is about to act has none.
std::vector<bool> Trainer::hook_requests(const std::vector<bool>& granted) const {
  std::vector<bool> hook_requests;
  for (size_t i = 0; i < hooks_.size(); ++i) {
    const bool acts_now = i < granted.size() && granted[i];
    hook_requests.push_back(!acts_now && hooks_[i]->is_due());
  }
  return hook_requests;
}

/// Waits, or step times would only measure queueing, and a collective that hangs on the device would go unnoticed.
void Trainer::wait_for_device(const Progress& progress, const std::vector<bool>& granted) {
  bool is_looked_at = finished(progress);
  for (size_t i = 0; i < hooks_.size(); ++i) is_looked_at |= hooks_[i]->will_act(progress, granted[i]);
  const auto begin = std::chrono::steady_clock::now();
  const ProfileRange range(kDeviceRange);
  run_ahead_.wait(is_looked_at ? 0 : kStepsAhead, [&](size_t marked_after) {
    parts_.groups.tensors().check("step " + std::to_string(progress.step - static_cast<int64_t>(marked_after)), begin);
  });
}

void Trainer::advance(Progress& progress, const StepPrefetcher::Step& fetched) {
  ++progress.step;
  progress.usage.add(fetched.agreed.usage);
  progress.unreadable_in_epoch += fetched.agreed.usage.unreadable;
  if (fetched.data.ends_epoch) progress.unreadable_in_epoch = 0;
  if (parts_.plan.tokens_per_step > 0) progress.tokens += fetched.agreed.weight;
}

}  // namespace gputrain::train
