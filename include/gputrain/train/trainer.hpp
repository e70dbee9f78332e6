// The one loop. Everything else is a hook.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gputrain/train/feed.hpp"
#include "gputrain/train/hook.hpp"
#include "gputrain/train/plan.hpp"
#include "gputrain/train/step.hpp"

namespace gputrain::train {

/// Why the loop ended.
struct Outcome {
  enum class Kind { finished, time_is_up, stopped } kind = Kind::finished;
  int signal = 0;  // stopped: SIGINT or SIGTERM
};

class Trainer {
 public:
  struct Parts {
    Step& step;
    Feed& feed;
    const Plan& plan;
    std::function<double(int64_t step)> lr;  // learning rate of the step with this index, from 0
  };

  Trainer(Parts parts, std::vector<Hook*> hooks) : parts_(std::move(parts)), hooks_(std::move(hooks)) {}

  /// Trains from `progress` to the plan's end, or until a signal or the time limit. Every rank must call.
  Outcome run(Progress& progress);

 private:
  bool finished(const Progress& progress) const noexcept { return progress.step >= parts_.plan.total_steps; }
  std::vector<bool> wishes(const Progress& progress, const std::vector<bool>& granted) const;
  void advance(Progress& progress, const Feed::Step& feed);

  Parts parts_;
  std::vector<Hook*> hooks_;
};

}  // namespace gputrain::train
