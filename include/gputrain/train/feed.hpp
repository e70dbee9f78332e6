// Feeds the loop: the next step's data together with what all ranks agreed on about it, one step ahead.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/train/preemption.hpp"

namespace gputrain::train {

/// What the ranks told each other before a step.
struct Agreement {
  int64_t weight = 0;        // targets of the step over all ranks
  data::Usage usage;         // samples of the step over all ranks
  Stop stop = Stop::none;    // instead of the step
  std::vector<bool> wishes;  // whether any rank had the wish, as given to prefetch()
  bool replays = false;      // every rank can do the step by replaying one
};

class Feed {
 public:
  struct Step {
    data::StepData data;
    Agreement agreed;
    double wait_seconds = 0;  // how long the loop waited for the data
  };

  /// `can_replay`: whether a step with these data can be done by replaying one, here.
  Feed(data::Loader& loader, comm::ProcessGroups& groups, StopReason own_stop,
       std::function<bool(const data::StepData&)> can_replay)
      : loader_(loader), groups_(groups), own_stop_(std::move(own_stop)), can_replay_(std::move(can_replay)) {}

  /// Fetches a step's data and starts agreeing on it with the other ranks; call once the step before it runs on the
  /// device. `wishes` are this rank's, of the same number everywhere. Every rank must call.
  void prefetch(const std::vector<bool>& wishes);
  /// The step fetched last, agreed on. Its agreement must be taken even where its data is no longer wanted.
  Step next();

 private:
  data::Loader& loader_;
  comm::ProcessGroups& groups_;
  StopReason own_stop_;
  std::function<bool(const data::StepData&)> can_replay_;
  std::optional<Step> fetched_;
  at::Tensor sums_;        // int64: weight, samples, ranks that cannot replay, votes for a stop, wishes
  comm::Pending pending_;  // the sum of sums_ over the ranks
};

}  // namespace gputrain::train
