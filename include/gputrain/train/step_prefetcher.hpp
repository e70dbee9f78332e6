// Gives the training loop each step's data and what all ranks agreed on for it; fetches one step ahead.
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

/// The agreement of all ranks before a step.
struct StepConsensus {
  int64_t weight = 0;               // targets of the step over all ranks
  double loss_weight = 0;           // divisor of the step's loss: weight, or that of the targets' classes
  data::SampleUsage usage;          // samples of the step over all ranks
  Stop stop = Stop::none;           // end training instead of this step
  std::vector<bool> hook_requests;  // for each wish given to prefetch(): whether any rank had it
  bool replays = false;             // every rank can replay the step, or record it
  bool records = false;             // some rank records a part of it
};

/// A rank's way to run a step with graphs. `record`: some of its passes have no graph yet.
enum class GraphUse { none, record, replay };

class StepPrefetcher {
 public:
  struct Step {
    data::StepData data;
    StepConsensus agreed;
    double wait_seconds = 0;  // how long the loop waited for the data
  };

  /// `graph_use`: how this rank can run a step with these data.
  StepPrefetcher(data::Loader& loader, comm::ProcessGroups& groups, StopReason own_stop,
                 std::function<GraphUse(const data::StepData&)> graph_use)
      : loader_(loader), groups_(groups), own_stop_(std::move(own_stop)), graph_use_(std::move(graph_use)) {}

  /// Fetches the next step's data and starts the all-reduce of the agreement; call it while the device runs the current
  /// step. `hook_requests` are this rank's, the same number on every rank. Every rank must call.
  void prefetch(const std::vector<bool>& hook_requests);
  /// Returns the step fetched last. Call it even if its data is no longer needed, to complete the all-reduce.
  Step next();

  /// Agrees on a stop and on hook requests, without a step. Every rank must call.
  StepConsensus agree(const std::vector<bool>& hook_requests);

 private:
  std::vector<double> with_wishes(std::vector<double> counts, const std::vector<bool>& hook_requests) const;

  data::Loader& loader_;
  comm::ProcessGroups& groups_;
  StopReason own_stop_;
  std::function<GraphUse(const data::StepData&)> graph_use_;
  std::optional<Step> fetched_;
  at::Tensor sums_;  // double, which holds such counts exactly: weights, usage, ranks that cannot replay or that
                     // record, votes for a stop, wishes
  comm::Pending pending_;  // the all-reduce of sums_
};

}  // namespace gputrain::train
